"""Scripted players: opponents for training and evaluation that need no training themselves.

A player has no state and chooses moves on any number of boards at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.ludo import Ludo
from paceline.domains.games.ludo_words import HOME, SAFE, YARD
from paceline.domains.games.stones import Stones
from paceline.domains.games.tic_tac_toe import LINED, TicTacToe
from paceline.envs.game import Game, Player, Rows
from paceline.errors import ConfigError, nearest
from paceline.ops.random_bits import pick


class RandomPlayer:
    """Plays a random legal move, uniformly. Can play every game."""

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`."""
        return pick(game.legal(rows), noise)


class GreedyPlayer:
    """Looks one move ahead: wins if it can, else blocks a line that the opponent could complete, else moves at random.

    Can play Connect Four and Tic-tac-toe.
    """

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`."""
        if not isinstance(game, Stones):
            raise _cannot("greedy", game.name)
        good = game.legal(rows)
        # Winning moves are applied last, so that they have precedence over blocking moves.
        for urgent in (game.lines(rows, other=True), game.lines(rows)):
            good = np.where(urgent.any(axis=1, keepdims=True), urgent, good)
        return pick(good, noise)


class LudoHeuristic:
    """Ludo player by fixed rules.

    It prefers captures, then moves home, then leaving the yard, then safe squares, then moves of the foremost piece.
    """

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`. Equal scores go to the first die and the piece with the lowest number."""
        del noise
        if not isinstance(game, Ludo):
            raise _cannot("heuristic", game.name)
        legal, start, landing, captures = game.outcomes(rows)
        score = start / (HOME + 1)  # below 1, the smallest bonus
        score += 8 * captures + 4 * (landing == HOME) + 2 * (start == YARD) + SAFE.take(landing)
        best: NDArray[np.int64] = np.where(legal, score, -1).argmax(axis=1)
        return best


class Minimax:
    """Perfect Tic-tac-toe player: wins as soon as possible and never loses. It picks randomly among the best moves."""

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`."""
        if not isinstance(game, TicTacToe):
            raise _cannot("minimax", game.name)
        mine, other = (game.state[side][rows] for side in ("mine", "other"))
        best = _best_moves().take(mine << 9 | other)
        return pick((best[:, None] >> np.arange(9)) & 1 == 1, noise)


PLAYERS: dict[str, Callable[[], Player]] = {
    "random": RandomPlayer,
    "heuristic": LudoHeuristic,
    "greedy": GreedyPlayer,
    "minimax": Minimax,
}
_PLAYS = {
    "heuristic": {"ludo"},
    "greedy": {"connect_four", "tic_tac_toe"},
    "minimax": {"tic_tac_toe"},
}
"""Games that a player can play; players that are not listed can play all."""


def player(name: str, game_name: str) -> Player:
    """A player by name.

    Args:
        name: One of `PLAYERS`.
        game_name: The `Game.name` to play.

    Raises:
        ConfigError: No player has that name, or it cannot play the game.
    """
    if name not in PLAYERS:
        raise ConfigError(f"player {name!r}: unknown. {nearest(name, players_of(game_name))}")
    if name not in players_of(game_name):
        raise _cannot(name, game_name)
    return PLAYERS[name]()


def players_of(game_name: str) -> list[str]:
    """Names of the scripted players that can play a game."""
    return [name for name in PLAYERS if game_name in _PLAYS.get(name, {game_name})]


def _cannot(name: str, game_name: str) -> ConfigError:
    return ConfigError(f"player {name!r}: cannot play {game_name}. Choose one of {', '.join(players_of(game_name))}.")


@cache
def _best_moves() -> NDArray[np.int64]:
    """[2**18] the best moves of Tic-tac-toe as bits, by the mover's stones << 9 | the other's.

    Computed backwards from full boards: the values of boards with s stones follow from those with s + 1.
    """
    # For the player to move: 10 - s for a forced win with the s-th stone, negative for a forced loss.
    value = np.zeros(1 << 18, np.int64)
    best = np.zeros(1 << 18, np.int64)
    stones = np.arange(512)
    size = sum((stones >> bit) & 1 for bit in range(9))
    for laid in range(9, -1, -1):
        mine, other = (side.ravel() for side in np.meshgrid(stones[size == laid // 2], stones[size == (laid + 1) // 2]))
        apart = mine & other == 0
        mine, other = mine[apart], other[apart]
        here = mine << 9 | other
        lost = LINED[other]
        value[here] = np.where(lost, laid - 10, 0)
        if laid == 9:
            continue
        after = np.full((9, len(here)), -100)
        for cell in range(9):
            free = (mine | other) >> cell & 1 == 0
            after[cell, free] = -value[other[free] << 9 | mine[free] | 1 << cell]
        top = after.max(axis=0)
        value[here] = np.where(lost, value[here], top)
        best[here] = ((after == top) << np.arange(9)[:, None]).sum(axis=0)
    return best
