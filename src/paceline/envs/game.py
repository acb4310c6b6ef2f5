"""The protocols `Game` (a two-player board game) and `Player`.

    seeds --reset--> boards --observe, legal--> a player chooses --play--> boards ... over, winner

A `Game` holds n independent boards. `play` resolves dice and forced passes itself, so between calls every board is
either finished or has a player to move with at least one legal move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paceline.errors import EnvError

Rows = NDArray[np.intp]
"""[k] indices of boards, without repetition."""


class IllegalMove(EnvError):
    """An action that the rules do not allow, or any action on a finished board."""


class Game(Protocol):
    """n independent boards of a two-player, turn-based game. Every array has the board axis first; not thread-safe."""

    name: str
    n: int
    actions: int
    """Number of actions, legal or not."""
    obs_size: int
    """Length of the flat observation."""
    state: dict[str, NDArray[Any]]
    """The complete state of the boards, [n, ...] by name: copying a row of all arrays copies a board."""
    mover: NDArray[np.int8]  # [n]   the player to move, 0 or 1; undefined if the game is over
    over: NDArray[np.bool_]  # [n]   True also before the first reset
    winner: NDArray[np.int8]  # [n]  0, 1, or -1 for a draw; undefined unless the game is over

    def reset(self, rows: Rows, seeds: NDArray[np.uint64]) -> None:
        """Start new games on these boards.

        Args:
            rows: [k] boards.
            seeds: [k] the only source of randomness of a game: equal seeds and equal actions give equal games,
                independent of the other boards.
        """

    def play(self, rows: Rows, actions: NDArray[np.int64]) -> None:
        """Play one action of the mover on each of these boards. Then the game is over or its mover has a legal move.

        Args:
            rows: [k] boards.
            actions: [k]

        Raises:
            IllegalMove: An action is illegal; names the board, the action and the legal ones. No board has changed.
        """

    def observe(self, rows: Rows, seats: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """Return the observations of the movers, or of the given players.

        Args:
            rows: [k] boards.
            seats: [k] the player whose view to return; None for the mover. The other player's view contains no dice.

        Returns:
            [k, obs_size], a new array.
        """

    def legal(self, rows: Rows) -> NDArray[np.bool_]:
        """Return the legal actions of the movers, [k, actions], a new array; all False if the game is over."""

    def text(self, row: int) -> str:
        """Return a drawing of the board for a terminal."""

    def move_name(self, row: int, action: int) -> str:
        """Return the name of an action of the mover."""


def illegal(game: Game, row: int, action: int) -> IllegalMove:
    """Make the error for an action that a board does not allow."""
    who = f"{game.name}, board {row}"
    if game.over[row]:
        return IllegalMove(f"{who}: the game is over (action {action}). Reset the board first.")
    legal = ", ".join(str(a) for a in np.flatnonzero(game.legal(np.array([row]))[0]))
    return IllegalMove(f"{who}: action {action} is not legal (legal: {legal}). Choose where the action mask is True.")


class Player(Protocol):
    """Chooses moves. Keeps no state between calls, so that one player can play on any number of boards."""

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Choose a legal action for the mover of each board, [k]; it must not depend on the other boards.

        Args:
            game: The boards; read only.
            rows: [k] boards whose games are not over.
            noise: [k] 64 random bits each, the only source of randomness.
        """


@runtime_checkable
class GameHost(Protocol):
    """An env that is a two-player game against a fixed opponent. Self-play takes its parts and plays many boards."""

    engine: Callable[[int], Game]
    """Makes a game with this many boards."""
    game: Game
    """The env's own board."""
    opponent: str
    """Name of its opponent."""

    @property
    def scripted_players(self) -> Mapping[str, Callable[[], Player]]:
        """The players that know the game and need no training, by name."""
