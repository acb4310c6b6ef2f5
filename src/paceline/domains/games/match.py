"""Two players, many games: who is stronger, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.envs.game import Game, Player
from paceline.errors import ConfigError, check_range
from paceline.ops.random_bits import draws, mix

_CHOICES = np.uint64(0xA0761D6478BD642F)
"""Keeps the players' noise apart from the chance of the game."""


@dataclass(frozen=True, slots=True)
class MatchResult:
    """How a match went for the first player."""

    wins: int
    draws: int
    losses: int
    mean_length: float
    """Decisions a game, of both players together."""

    @property
    def games(self) -> int:
        """How many were played."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Share of games won; draws count for nothing."""
        return self.wins / self.games


def play_match(
    game_factory: Callable[[int], Game], player_a: Player, player_b: Player, games: int, seed: int, boards: int = 256
) -> MatchResult:
    """Play a match; each player is player 0 in exactly half of the games.

    Args:
        game_factory: Makes a game with the given number of boards, e.g. the class `Ludo`.
        player_a: Whose result it is.
        player_b: The other.
        games: How many, an even number.
        seed: Decides all chance of all games, and the noise of all choices.
        boards: How many games are played side by side. It does not change the result.
    """
    check_range("games", games, "A match needs games.", at_least=2)
    check_range("boards", boards, "A match needs boards.", at_least=1)
    if games % 2:
        raise ConfigError(f"games={games}: must be even: each player begins half of them. Try {games + 1}.")
    # Game i has the same chance and the same noise, wherever and beside whatever it is played.
    seeds = draws(mix(np.array([seed % 2**64], np.uint64)), np.arange(games))  # [games]
    game = game_factory(min(boards, games))
    rows = np.arange(game.n)
    number = rows.copy()  # [n] which game of the match is on each board; in the odd ones a is player 1
    length = np.zeros(game.n, np.int64)
    game.reset(rows, seeds[number])
    begun, wins, drawn, decisions = game.n, 0, 0, 0
    while rows.size:
        noise = draws(seeds[number[rows]] ^ _CHOICES, length[rows])
        turn_a = game.mover[rows] == number[rows] % 2
        actions = np.empty(len(rows), np.int64)
        for player, turn in ((player_a, turn_a), (player_b, ~turn_a)):
            if turn.any():
                actions[turn] = player.choose(game, rows[turn], noise[turn])
        game.play(rows, actions)
        length[rows] += 1
        ended = rows[game.over[rows]]
        if ended.size:
            wins += int((game.winner[ended] == number[ended] % 2).sum())
            drawn += int((game.winner[ended] < 0).sum())
            decisions += int(length[ended].sum())
            again = ended[: games - begun]
            number[again] = np.arange(begun, begun + len(again))
            length[again] = 0
            begun += len(again)
            game.reset(again, seeds[number[again]])
            rows = rows[~game.over[rows]]
    return MatchResult(wins, drawn, games - wins - drawn, decisions / games)
