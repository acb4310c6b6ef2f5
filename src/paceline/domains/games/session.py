"""A person against a player, move by move, without a terminal: whoever draws boards and reads keys is elsewhere.

    play(action) -> the player answers until it is the person's turn again, or over
    undo()       -> back to the person's previous decision

All chance comes from the seed and from counters that are part of what is gone back to: undoing rolls no other dice.
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
"""Keeps the noise of hints apart from that of answers: asking must not change what is played."""

Result = Literal["won", "lost", "drawn"]
"""How a game ended for the person."""


class Move(NamedTuple):
    """Something that the person can do."""

    action: int
    name: str


@dataclass(frozen=True, slots=True)
class Hint:
    """What the player would do in the person's place."""

    move: Move
    opinion: Opinion | None
    """What it makes of all moves; None if it is no network."""


class _Moment(NamedTuple):
    """All that a decision of the person can be gone back to with."""

    board: dict[str, NDArray[Any]]
    choices: int
    replies: tuple[str, ...]


class Session:
    """One game. The seed decides all dice and all that is drawn for the player.

    Args:
        game_name: One of `GAMES`.
        player: Who is played against.
        seat: The person's, 0 or 1; 0 begins.
        seed: Equal seeds and equal moves are equal games.
    """

    def __init__(self, game_name: str, player: Player, *, seat: int, seed: int) -> None:
        self.game, self.seat = GAMES[game_name](1), seat
        self.replies: tuple[str, ...] = ()
        """What the player has done since the person's last move, in words."""
        self._player = player
        self._past: list[_Moment] = []
        self._choices = 0  # of the player: the counter of its noise
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
        """How it ended; None while it goes on."""
        if not self.over:
            return None
        winner = int(self.game.winner[0])
        return "drawn" if winner < 0 else "won" if winner == self.seat else "lost"

    def board(self) -> str:
        """The board drawn as text."""
        return self.game.text(0)

    def moves(self) -> list[Move]:
        """What the person can do; nothing where the game is over."""
        return [self._named(int(action)) for action in np.flatnonzero(self.game.legal(_ROW)[0])]

    def play(self, action: int) -> None:
        """Move, and have the player answer.

        Raises:
            IllegalMove: The action is not legal, or the game is over. Nothing has changed then.
        """
        before = self._moment()
        self.game.play(_ROW, np.array([action], np.int64))
        self._past.append(before)
        self._answer()

    def undo(self) -> bool:
        """Go back to the person's previous decision, with the same dice to come; False if there is none."""
        if not self._past:
            return False
        moment = self._past.pop()
        for name, array in self.game.state.items():
            array[:] = moment.board[name]
        self._choices, self.replies = moment.choices, moment.replies
        return True

    def hint(self) -> Hint:
        """What the player would do here. Asking changes nothing, and asking twice gives the same answer.

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
        """Have the player move until it is the person's turn."""
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

    def _moment(self) -> _Moment:
        board = {name: array.copy() for name, array in self.game.state.items()}
        return _Moment(board, self._choices, self.replies)
