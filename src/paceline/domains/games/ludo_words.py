"""Ludo's squares and hands as numbers, and the arithmetic that moves four pieces at once.

A piece's square is kept as a byte: its owner's count plus 6.

    count    -1  | 0 ... 50 | 51 ... 55   | 56
    byte      0  | 6 ... 56 | 57 ... 61   | 62
            yard |   ring   | home column | home

So a move is always an addition (only a 6 brings a piece from the yard, 0, to the first square, 6), and the four pieces
of a player are one 32-bit word on which moves, legality and captures are computed for all four at once. A board is one
int64: the mover's word below, the other's above. When the turn passes, the two change places.

A hand is an int64 too, three bits a die, the first die lowest. It never has more than 17: a turn begins with at most
three, and each of at most seven captures and arrivals that do not win plays one die and adds at most three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.ops.random_bits import below, draws

YARD, START, HOME = 0, 6, 62
"""As bytes."""
_LAST_RING, _NEVER_SHARED = START + 50, START + 25  # the other never stands on my 25; it is safe anyway
HALF_LAP = 26
SIZE = HOME + 7
"""Of tables by landing byte: an illegal move may point up to 6 past home."""

_SAFE_COUNTS = [0, 8, 13, 21, 25, 26, 34, 39, 47, *range(51, 57)]
SAFE = np.zeros(SIZE, np.bool_)
"""[bytes] the squares on which a piece cannot be captured; the same squares for both players."""
SAFE[np.array(_SAFE_COUNTS) + START] = True

# Words of four equal bytes. Bytes stay below 128, so sums and differences of them do not spill into their neighbours.
_ONES = 0x01010101
_TOP_BITS = 0x80 * _ONES
WORD = 0xFFFFFFFF
ALL_HOME = HOME * _ONES

# By die, 0 for none: byte + _ENOUGH has its top bit set where the move would not end before START, and _ROOM - byte
# where it would not end past HOME. No die, no top bit.
_ENOUGH = np.array([0, *(128 - START + die for die in range(1, 7))]) * _ONES
_ROOM = np.array([0, *(128 + HOME - die for die in range(1, 7))]) * _ONES

# The four top bits of a word, multiplied by _GATHER, stand side by side from bit 31 on; four further for each die.
_SLOTS = np.arange(3)
_GATHER = (1 << 24 | 1 << 17 | 1 << 10 | 1 << 3) << 4 * _SLOTS
_GATHERED = 0xF << (31 + 4 * _SLOTS)

DIE_BITS = 3 * _SLOTS


def _shared_squares() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """By byte of mine, what to compare the other's word with.

    Returns:
        Words of the other's byte for the same square (127, which no piece has, where no capture can happen), and two
        words around it: `before - word` and `behind + word` both have a top bit set for a piece 1 to 6 behind.
    """
    same = np.full(SIZE, 127)
    before = np.full(SIZE, 64)  # 64 - byte never has its top bit set
    behind = np.zeros(SIZE, np.int64)
    for mine in range(START, _LAST_RING + 1):
        if not SAFE[mine]:
            others = mine + (HALF_LAP if mine < _NEVER_SHARED else -HALF_LAP)
            same[mine], before[mine], behind[mine] = others, 127 + others, 134 - others
    return same * _ONES, before * _ONES, behind * _ONES


_SAME_SQUARE, _BEFORE, _BEHIND = _shared_squares()


def _all_rolls() -> NDArray[np.int64]:
    """[216] the hand that each throw of three dice gives: a 6 rolls again, three of them give nothing."""
    hands = []
    for throw in range(216):
        first, second, third = (throw // 36 + 1, throw // 6 % 6 + 1, throw % 6 + 1)
        if first < 6:
            hands.append(first)
        elif second < 6:
            hands.append(6 | second << 3)
        else:
            hands.append(6 | 6 << 3 | third << 6 if third < 6 else 0)
    return np.array(hands)


_ROLLS = _all_rolls()
_THROWS = np.uint64(len(_ROLLS))


def legal_moves(board: NDArray[np.int64], hand: NDArray[np.int64]) -> NDArray[np.int64]:
    """[turns, k] a bit for each of the twelve actions."""
    dice = (hand >> DIE_BITS[:, None, None]) & 7  # [3, turns, k]
    able = (board + _ENOUGH.take(dice)) & (_ROOM.take(dice) - board) & _TOP_BITS
    able *= _GATHER[:, None, None]
    able &= _GATHERED[:, None, None]
    moves: NDArray[np.int64] = np.bitwise_or.reduce(able, axis=0) >> 31
    return moves


def pieces_on(landing: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The top bit of each piece of the other's that a piece landing there captures."""
    # Where the bytes are equal their difference is 0, and 128 - 0 is the only result with a top bit.
    return (_TOP_BITS - (other ^ _SAME_SQUARE.take(landing))) & _TOP_BITS


def chasers_of(squares: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many pieces of the other's are 1 to 6 behind each of these squares; 0 where nothing can be captured."""
    behind = (_BEFORE.take(squares) - other) & (_BEHIND.take(squares) + other) & _TOP_BITS
    return (((behind >> 7) * _ONES) >> 24) & 7


def swapped(board: NDArray[np.int64]) -> NDArray[np.int64]:
    """The boards from the other side."""
    return (board >> 32) | (board << 32)


def roll(key: NDArray[np.uint64], rolls: NDArray[np.int64]) -> NDArray[np.int64]:
    """A whole roll, as a hand: one to three dice, or none."""
    return _ROLLS.take(below(draws(key, rolls), _THROWS))


def count_dice(hand: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many dice a hand has."""
    bits = np.frexp(hand)[1]  # exact: hands have less than 53 bits
    return (bits.astype(np.int64) + 2) // 3
