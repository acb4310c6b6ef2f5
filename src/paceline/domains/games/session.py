"""`Session`: the state of a game between a person and a player. `play` has the terminal input and output.

    play(action) -> the player answers until it is the person's turn again or the game is over
    undo()       -> back to the person's previous decision

All random numbers come from the seed and from counters that `undo` restores, so that the same dice follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games import GAMES
from paceline.domains.games.net_player import NetPlayer, Opinion
from paceline.envs.game import IllegalMove, Player
from paceline.ops.random_bits import draws, mix

_ROW = np.zeros(1, np.intp)
_HINTS = np.uint64(0x4117_4117)
"""Mixed into the key, so that hints use other random numbers than the player's moves and do not change them."""

Result = Literal["won", "lost", "drawn"]
"""Result of a game for the person."""


class Move(NamedTuple):
    """A legal move and its name."""

    action: int
    name: str


@dataclass(frozen=True, slots=True)
class Hint:
    """The move that the player would make in the person's place."""

    move: Move
    opinion: Opinion | None
    """Its evaluation of all moves; None if the player is not a network."""


class _SavedState(NamedTuple):
    """State at a decision of the person, for `undo`."""

    board: dict[str, NDArray[Any]]
    choices: int
    replies: tuple[str, ...]


class Session:
    """One game between a person and a player.

    Args:
        game_name: A name in `GAMES`.
        player: The person's opponent.
        seat: Player number of the person, 0 or 1. Player 0 begins.
        seed: Seed of dice and of the player's choices. The same seed and moves give the same game.
    """

    def __init__(self, game_name: str, player: Player, *, seat: int, seed: int) -> None:
        self.game, self.seat = GAMES[game_name](1), seat
        self.replies: tuple[str, ...] = ()
        """Names of the player's moves since the person's last move."""
        self._player = player
        self._past: list[_SavedState] = []
        self._choices = 0  # number of choices of the player: the counter of its random numbers
        keys = draws(mix(np.array([seed % 2**64], np.uint64)), np.arange(2))
        self._key = keys[1:]
        self.game.reset(_ROW, keys[:1])
        self._answer()

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return bool(self.game.over[0])

    @property
    def result(self) -> Result | None:
        """The result; None before the game is over."""
        if not self.over:
            return None
        winner = int(self.game.winner[0])
        return "drawn" if winner < 0 else "won" if winner == self.seat else "lost"

    def moves(self) -> list[Move]:
        """The person's legal moves; empty when the game is over."""
        return [self._named(int(action)) for action in np.flatnonzero(self.game.legal(_ROW)[0])]

    def play(self, action: int) -> None:
        """Make a move for the person, then the player's moves until it is the person's turn again.

        Raises:
            IllegalMove: The action is not legal, or the game is over. Nothing has changed then.
        """
        board = {name: array.copy() for name, array in self.game.state.items()}
        before = _SavedState(board, self._choices, self.replies)
        self.game.play(_ROW, np.array([action], np.int64))
        self._past.append(before)
        self._answer()

    def undo(self) -> bool:
        """Go back to the person's previous decision; False if there is none. The same dice follow."""
        if not self._past:
            return False
        saved = self._past.pop()
        for name, array in self.game.state.items():
            array[:] = saved.board[name]
        self._choices, self.replies = saved.choices, saved.replies
        return True

    def hint(self) -> Hint:
        """The move that the player would make in the person's place. Does not change the game; repeatable.

        Raises:
            IllegalMove: The game is over.
        """
        if self.over:
            raise IllegalMove(f"{self.game.name}: the game is over, there is no move to hint at. Undo one first.")
        noise = draws(self._key ^ _HINTS, np.array([self._choices]))
        action = int(self._player.choose(self.game, _ROW, noise)[0])
        opinion = self._player.opinion(self.game, 0) if isinstance(self._player, NetPlayer) else None
        return Hint(self._named(action), opinion)

    def _answer(self) -> None:
        """Make the player's moves until it is the person's turn or the game is over."""
        replies = []
        while not self.over and self.game.mover[0] != self.seat:
            noise = draws(self._key, np.array([self._choices]))
            self._choices += 1
            action = self._player.choose(self.game, _ROW, noise)
            replies.append(self._named(int(action[0])).name)
            self.game.play(_ROW, action)
        self.replies = tuple(replies)

    def _named(self, action: int) -> Move:
        return Move(action, self.game.move_name(0, action))
