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
"""[k] which boards, each at most once."""


class IllegalMove(EnvError):
    """An action that the rules do not allow, or any action on a finished board."""


class Game(Protocol):
    """n boards of a two-player, turn-taking game. Every array has the board axis first; single-threaded."""

    name: str
    n: int
    actions: int
    """How many there are; legal or not is for `legal` to say."""
    obs_size: int
    """Length of the flat observation."""
    state: dict[str, NDArray[Any]]
    """Every array that makes up the boards, [n, ...]: copying a row of all of them copies a board."""
    mover: NDArray[np.int8]  # [n]   whose turn it is, 0 or 1; says nothing where over
    over: NDArray[np.bool_]  # [n]   also before the first reset
    winner: NDArray[np.int8]  # [n]  0, 1, or -1 for a draw; says nothing where not over

    def reset(self, rows: Rows, seeds: NDArray[np.uint64]) -> None:
        """Begin new games.

        Args:
            rows: [k]
            seeds: [k] where all chance of a game comes from: equal seeds and equal actions are equal games, whatever
                happens on the other boards.
        """

    def play(self, rows: Rows, actions: NDArray[np.int64]) -> None:
        """Have the mover of each of these boards play. Afterwards each is over, or its mover has a legal move.

        Raises:
            IllegalMove: Naming board, action and the legal ones. No board has changed then.
        """

    def observe(self, rows: Rows, seats: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """What the movers see.

        Args:
            rows: [k]
            seats: [k] whose eyes to look through instead of the mover's. Who is not to move sees no dice.

        Returns:
            [k, obs_size], a new array.
        """

    def legal(self, rows: Rows) -> NDArray[np.bool_]:
        """[k, actions] what the movers may do, a new array; nothing where over."""

    def text(self, row: int) -> str:
        """The board drawn for a terminal."""

    def move_name(self, row: int, action: int) -> str:
        """What an action of the mover means, in words."""


def illegal(game: Game, row: int, action: int) -> IllegalMove:
    """The error about an action that a board does not allow."""
    who = f"{game.name}, board {row}"
    if game.over[row]:
        return IllegalMove(f"{who}: the game is over (action {action}). Reset the board first.")
    legal = ", ".join(str(a) for a in np.flatnonzero(game.legal(np.array([row]))[0]))
    return IllegalMove(f"{who}: action {action} is not legal (legal: {legal}). Choose where the action mask is True.")


class Player(Protocol):
    """Chooses moves. Keeps nothing from one choice to the next, so that one player may sit at any number of boards."""

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """A legal action for the mover of each of these boards, none of which is over.

        Args:
            game: Only looked at.
            rows: [k]
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
