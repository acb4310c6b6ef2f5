"""`play_match`: plays many games between two players and counts wins, draws and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.envs.game import Game, Player
from paceline.errors import ConfigError, check_range
from paceline.ops.random_bits import draws, mix

_CHOICES = np.uint64(0xA0761D6478BD642F)
"""Mixed into the seeds, so that the players' random numbers are independent of those of the game."""


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Result of a match, from the side of the first player."""

    wins: int
    draws: int
    losses: int
    mean_length: float
    """Mean number of decisions per game, of both players together."""

    @property
    def games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Share of games won; a draw is not a win."""
        return self.wins / self.games


def play_match(
    game_factory: Callable[[int], Game], player_a: Player, player_b: Player, games: int, seed: int, boards: int = 256
) -> MatchResult:
    """Play a match; each player is player 0 in exactly half of the games.

    Args:
        game_factory: Makes a game with the given number of boards, e.g. the class `Ludo`.
        player_a: The player whose wins and losses are counted.
        player_b: The opponent.
        games: Number of games, which must be even.
        seed: Seed of all games and of all players' choices.
        boards: Number of games played at the same time. It does not change the result.
    """
    check_range("games", games, "Try 1000.", at_least=2)
    check_range("boards", boards, "Try 256.", at_least=1)
    if games % 2:
        raise ConfigError(f"games={games}: must be even: each player begins half of them. Try {games + 1}.")
    # The random numbers of game i depend on its number only, not on its board or the other games.
    seeds = draws(mix(np.array([seed % 2**64], np.uint64)), np.arange(games))  # [games]
    game = game_factory(min(boards, games))
    rows = np.arange(game.n)
    number = rows.copy()  # [n] number of the game on each board; player_a is player 1 in odd games
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
