"""Ludo for two players with four pieces each, as a vectorised engine.

A turn begins with a roll of one to three dice (the hand). `ludo_words.py` describes how boards and hands are encoded as
integers and has the arithmetic on them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.boards import Boards
from paceline.domains.games.ludo_words import (
    ALL_HOME,
    DIE_BITS,
    HALF_LAP,
    HOME,
    SAFE,
    SIZE,
    START,
    WORD,
    YARD,
    chasers_of,
    count_dice,
    legal_moves,
    pieces_on,
    roll,
    swapped,
)
from paceline.envs.game import Rows, illegal
from paceline.ops.random_bits import mix

_MOST_TURNS = 32
"""Largest number of turns that are computed in one call, to find the next turn that has a move."""
_MANY = 512
"""Boards times turns below which a numpy call costs little more than its fixed overhead."""
_TURNS = np.arange(_MOST_TURNS)[:, None]
_CHUNK = 512
"""Boards observed at a time, so that the intermediate arrays fit into the CPU cache."""


# Twenty squares of a board are handled together: those of the mover's four pieces, those of the opponent's, and those
# where each of the twelve actions would put a piece. The arrays below give, for each square, how far to shift the board
# to get the piece, the hand to get the die of the move (60: no die), and the board to get the word of the side that may
# capture there.
_NOW, _AFTER = slice(0, 8), slice(8, 20)
_PIECE_BITS = 8 * np.r_[np.arange(8), np.tile(np.arange(4), 3)]
_MOVED_BITS = np.r_[np.full(8, 60), np.repeat(DIE_BITS, 4)]
_AGAINST_BITS = np.r_[np.full(4, 32), np.full(4, 0), np.full(12, 32)]


def _feature_tables() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tables of the features of a piece and of an action in the observation.

    Returns:
        Pieces [bytes * 5, 5], indexed by 5 * byte + chasers; and actions [bytes * 10, 7], indexed by
        10 * landing byte + 5 * captures + chasers after the move.
    """
    piece, action = np.zeros((SIZE, 5, 5), np.float32), np.zeros((SIZE, 2, 5, 7), np.float32)
    chased = np.arange(5) / 4
    piece[:, :, 4] = chased
    piece[YARD, :, 1] = 1
    piece[HOME, :, 3] = 1
    for byte in range(START, HOME + 1):
        piece[byte, :, 0] = (byte - START + 1) / 57
        piece[byte, :, 2] = SAFE[byte] and byte < HOME
        action[byte, :, :, 0] = 1
        action[byte, 1, :, 1] = 1
        action[byte, :, :, 2] = chased
        action[byte, :, :, 3:] = byte == START, SAFE[byte], byte == HOME, (HOME - byte) / 56
    return piece.reshape(-1, 5), action.reshape(-1, 7)


_PIECE_FEATURES, _ACTION_FEATURES = _feature_tables()
_SIXTHS = np.arange(8, dtype=np.float32) / 6


class Outcomes(NamedTuple):
    """The outcome of each of the twelve actions. Values of illegal actions are undefined."""

    legal: NDArray[np.bool_]  # [k, 12]
    start: NDArray[np.int64]  # [k, 12]      byte of the piece before the move
    landing: NDArray[np.int64]  # [k, 12]    byte of the piece after the move
    captures: NDArray[np.bool_]  # [k, 12]


class Ludo(Boards):
    """n boards of Ludo. Action 4d + p moves piece p by the d-th of the three dice on offer.

    The observation has 128 numbers between 0 and 1. Squares are counted from each owner's start. The player who is not
    to move sees no dice.

    | from | for each | numbers |
    |---|---|---|
    | 0 | piece, own first: 8 x 5 | progress, (count + 1) / 57; in the yard; safe but not home; home; chasers / 4 |
    | 40 | action: 12 x 7 | legal; captures; chasers after it / 4; leaves the yard; lands safe; gets home; left / 56 |
    | 124 | die on offer: 3 | die / 6; 0 for no die |
    | 127 | hand | number of dice / 6, at most 1 |

    Chasers are the opponent's pieces 1 to 6 squares behind a piece that can be captured. "left" is the distance to home
    after the action. An illegal action has seven zeros.

    Args:
        n: Number of boards.
    """

    name = "ludo"
    actions = 12
    obs_size = 128

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self._board = np.zeros(n, np.int64)
        self._hand = np.zeros(n, np.int64)
        self._key = np.zeros(n, np.uint64)
        self._rolls = np.zeros(n, np.int64)  # number of rolls so far: the counter of the board's random numbers
        self.state |= {"board": self._board, "hand": self._hand, "key": self._key, "rolls": self._rolls}

    def reset(self, rows: Rows, seeds: NDArray[np.uint64]) -> None:
        """Begin new games; player 0 is the first to roll. See `Game.reset`."""
        at = self._at(rows)
        nothing = np.zeros(len(rows), np.int64)
        self._key[at] = mix(np.asarray(seeds, np.uint64))
        self.over[at] = False
        self.winner[at] = -1
        # Player 1 has the turn and no dice, so `_settle` passes the turn on and player 0 rolls.
        self._settle(at, nothing, nothing, np.ones(len(rows), np.int8), nothing)

    def play(self, rows: Rows, actions: NDArray[np.int64]) -> None:
        """Play one die on each of these boards. See `Game.play`."""
        at = self._at(rows)
        self._require_legal(rows, self._moves[at], actions)
        board, hand, mover, rolls = self._board[at], self._hand[at], self.mover[at], self._rolls[at]
        die, byte = 3 * (actions >> 2), (actions & 3) << 3  # shifts to the bits of the die and of the piece
        board = board + (((hand >> die) & 7) << byte)
        landing = (board >> byte) & 127
        hand = hand ^ ((hand ^ (hand >> 3)) & np.left_shift(-1, die))  # removes the die; later dice move up
        caught = pieces_on(landing, board >> 32)
        again = np.flatnonzero(caught | (landing == HOME))
        won = again
        if again.size:
            first = caught[again]
            first &= -first  # one piece per landing: the one with the lowest number
            whole = (first << 1) - (first >> 7)  # a byte of ones at the captured piece
            board[again] &= ~(whole << 32)
            hand[again] |= roll(self._key[at][again], rolls[again]) << 3 * count_dice(hand[again])
            rolls = rolls.copy()
            rolls[again] += 1
            won = again[board[again] & WORD == ALL_HOME]
        winners = mover[won]
        self._settle(at, board, hand, mover, rolls)
        if won.size:
            self._end(rows[won], board[won], winners)

    def observe(self, rows: Rows, seats: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """The 128 numbers of the class docstring. See `Game.observe`."""
        at = self._at(rows)
        board, hand, moves = self._board[at], self._hand[at], self._moves[at]
        if seats is not None:
            away = seats != self.mover[at]
            board = np.where(away, swapped(board), board)
            hand, moves = hand * ~away, moves * ~away
        out = np.empty((len(board), self.obs_size), np.float32)
        for first in range(0, len(board), _CHUNK):
            part = slice(first, first + _CHUNK)
            self._show(board[part], hand[part], moves[part], out[part])
        return out

    def outcomes(self, rows: Rows) -> Outcomes:
        """The outcome of each action on these boards."""
        at = self._at(rows)
        board, moves = self._board[at], self._moves[at]
        squares, against = self._squares(board, self._hand[at], moves)
        landing = squares[:, _AFTER]
        return Outcomes(
            legal=self._masks.take(moves, axis=0),
            start=(board[:, None] >> _PIECE_BITS[_AFTER]) & 127,
            landing=landing,
            captures=pieces_on(landing, against[:, _AFTER]) != 0,
        )

    def counts(self, row: int) -> list[list[int]]:
        """Squares of the pieces of players 0 and 1, each counted from its owner's start; -1 is the yard."""
        pieces = ((self._board[row] >> _PIECE_BITS[_NOW]) & 127).tolist()
        sides = [[byte - START if byte else -1 for byte in side] for side in (pieces[:4], pieces[4:])]
        return sides[::-1] if self.mover[row] else sides

    def hand(self, row: int) -> list[int]:
        """Dice of the player to move. The first three are on offer."""
        return [int(die) for die in (self._hand[row] >> 3 * np.arange(21)) & 7 if die]

    def text(self, row: int) -> str:
        """The ring, counted from player 0's start, then a list of all pieces; A12 are pieces 1 and 2 of player 0."""
        counts = self.counts(row)
        squares = [""] * 52
        for player, letter in enumerate("AB"):
            for square in range(51):
                here = "".join(str(piece + 1) for piece in range(4) if counts[player][piece] == square)
                squares[(square + player * HALF_LAP) % 52] += f"{letter}{here}" if here else ""
        marks = [pieces or ("*" if SAFE[START + square] else ".") for square, pieces in enumerate(squares)]
        marks[51] = squares[51] or "*"  # square 25 in player 1's count, which is safe
        lines = [f"Ludo, {self._status(row)}"]
        for first in range(0, 52, 13):
            lines.append("".join(f"{square:>6}" for square in range(first, first + 13)))
            lines.append("".join(f"{mark:>6}" for mark in marks[first : first + 13]))
        for player, letter in enumerate("AB"):
            off = [f"{letter}{piece + 1} {_place(count)}" for piece, count in enumerate(counts[player])]
            lines.append(f"player {player}: {', '.join(off)}")
        return "\n".join(lines)

    def move_name(self, row: int, action: int) -> str:
        """The name of an action, such as `die 5: piece 2 from 12 to 17`."""
        after = self.outcomes(np.array([row]))
        if not after.legal[0, action]:
            raise illegal(self, row, action)
        start, landing = int(after.start[0, action]), int(after.landing[0, action])
        die = landing - start
        if start == YARD:
            return f"die {die}: piece {action % 4 + 1} leaves the yard"
        target = "home" if landing == HOME else str(landing - START)
        captures = " and captures" if after.captures[0, action] else ""
        return f"die {die}: piece {action % 4 + 1} from {start - START} to {target}{captures}"

    def _status(self, row: int) -> str:
        if self.over[row]:
            return f"player {self.winner[row]} has won"
        dice = self.hand(row)
        waiting = f" (then {' '.join(map(str, dice[3:]))})" if dice[3:] else ""
        mover = self.mover[row]
        return f"player {mover} ({'AB'[mover]}) to move, dice {' '.join(map(str, dice[:3]))}{waiting}"

    def _show(
        self,
        board: NDArray[np.int64],
        hand: NDArray[np.int64],
        moves: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """Write the observations of boards [k] into `out` [k, 128]."""
        k = len(board)
        squares, against = self._squares(board, hand, moves)
        chasers = chasers_of(squares, against)
        captures = pieces_on(squares[:, _AFTER], against[:, _AFTER]) != 0
        pieces = 5 * squares[:, _NOW] + chasers[:, _NOW]  # [k, 8]
        actions = 10 * squares[:, _AFTER] + chasers[:, _AFTER] + 5 * captures  # [k, 12]
        out[:, :40] = _PIECE_FEATURES.take(pieces, axis=0).reshape(k, 40)
        out[:, 40:124] = _ACTION_FEATURES.take(actions, axis=0).reshape(k, 84)
        out[:, 124:127] = _SIXTHS.take((hand[:, None] >> DIE_BITS) & 7)
        out[:, 127] = _SIXTHS.take(np.minimum(count_dice(hand), 6))

    def _squares(
        self, board: NDArray[np.int64], hand: NDArray[np.int64], moves: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The twenty squares as bytes (the yard for an illegal action) and the words of the sides that may capture.

        Returns:
            Squares and words, both [k, 20]; see `_NOW` and `_AFTER`.
        """
        column = board[:, None]
        squares = ((column >> _PIECE_BITS) & 127) + ((hand[:, None] >> _MOVED_BITS) & 7)
        squares[:, _AFTER] *= self._masks.take(moves, axis=0)
        return squares, (column >> _AGAINST_BITS) & WORD

    def _settle(
        self,
        at: Rows | slice,
        board: NDArray[np.int64],
        hand: NDArray[np.int64],
        mover: NDArray[np.int8],
        rolls: NDArray[np.int64],
    ) -> None:
        """Pass turns on until the player to move has a legal move on every board, and store the boards.

        A turn without a legal move does not change the pieces. Therefore several successive turns can be computed at
        once; each board takes the first that has a move.
        """
        key = self._key[at]
        found = _first_move(board, hand, mover, key, rolls)
        stuck = np.flatnonzero(found.moves == 0)
        while stuck.size:
            now = _Turn(*(array[stuck] for array in found))
            later = _first_move(now.board, now.hand, now.mover, key[stuck], now.rolls)
            for whole, part in zip(found, later, strict=True):
                whole[stuck] = part
            stuck = stuck[later.moves == 0]
        self._board[at], self._hand[at], self.mover[at], self._rolls[at], self._moves[at] = found

    def _end(self, rows: Rows, board: NDArray[np.int64], winners: NDArray[np.int8]) -> None:
        """Store finished boards as the last move left them."""
        self._board[rows] = board
        self._hand[rows] = self._moves[rows] = 0
        self.mover[rows] = self.winner[rows] = winners
        self.over[rows] = True


class _Turn(NamedTuple):
    """State of boards at the start of a decision; all [k]."""

    board: NDArray[np.int64]
    hand: NDArray[np.int64]
    mover: NDArray[np.int64]
    rolls: NDArray[np.int64]
    moves: NDArray[np.int64]


def _first_move(
    board: NDArray[np.int64],
    hand: NDArray[np.int64],
    mover: NDArray[np.int64] | NDArray[np.int8],
    key: NDArray[np.uint64],
    rolls: NDArray[np.int64],
) -> _Turn:
    """The first turn from the current one on that has a legal move; the last computed turn if none has."""
    k = len(board)
    turns = min(max(_MANY // max(k, 1), 2), _MOST_TURNS)
    boards, hands = np.empty((2, turns, k), np.int64)
    boards[0::2], boards[1::2] = board, swapped(board)
    hands[0], hands[1:] = hand, roll(key, rolls + _TURNS[: turns - 1])
    moves = legal_moves(boards, hands)
    if turns == 2:
        first = (moves[0] == 0).astype(np.intp)
    else:
        has_move = moves != 0
        has_move[-1] = True
        first = has_move.argmax(axis=0)
    which = first * k + np.arange(k)
    return _Turn(boards.take(which), hands.take(which), mover ^ (first & 1), rolls + first, moves.take(which))


def _place(count: int) -> str:
    """Describe the place of a piece: in the yard, on a square, n from home, or home."""
    if count < 0:
        return "in the yard"
    if count > 50:
        return "home" if count == 56 else f"{56 - count} from home"
    return f"on {count}"
