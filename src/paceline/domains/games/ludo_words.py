"""Encodes Ludo boards and hands as integers, with bit arithmetic that handles all four pieces of a player at once.

The square of a piece is stored as a byte: the square in its owner's count plus 6.

    count    -1  | 0 ... 50 | 51 ... 55   | 56
    byte      0  | 6 ... 56 | 57 ... 61   | 62
            yard |   ring   | home column | home

Every move is an addition (only a 6 moves a piece from the yard, 0, to the first square, 6). The four pieces of a player
are one 32-bit word, on which moves, legality and captures are computed for all four at once. A board is one int64: the
word of the player to move in the low half, the opponent's in the high half. When the turn passes, the halves are
swapped.

A hand is an int64 with three bits per die, the first die in the lowest bits. It has at most 17 dice: a turn begins with
at most three, and each of at most seven captures and arrivals that do not win plays one die and adds at most three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.ops.random_bits import below, draws

YARD, START, HOME = 0, 6, 62
"""Bytes of the yard, the first square and home."""
_LAST_RING, _NEVER_SHARED = START + 50, START + 25  # the opponent never stands on a player's square 25, which is safe
HALF_LAP = 26
SIZE = HOME + 7
"""Size of tables indexed by landing byte: an illegal move may point up to 6 past home."""

_SAFE_COUNTS = [0, 8, 13, 21, 25, 26, 34, 39, 47, *range(51, 57)]
SAFE = np.zeros(SIZE, np.bool_)
"""[bytes] whether a piece cannot be captured on a square; the same squares of the ring for both players."""
SAFE[np.array(_SAFE_COUNTS) + START] = True

# Words of four equal bytes. Bytes stay below 128, so sums and differences do not carry into the neighbouring bytes.
_ONES = 0x01010101
_TOP_BITS = 0x80 * _ONES
WORD = 0xFFFFFFFF
ALL_HOME = HOME * _ONES

# Indexed by die (0: no die). byte + _ENOUGH has its top bit set if the move would not end before START, and
# _ROOM - byte if it would not end past HOME. Without a die no top bit is set.
_ENOUGH = np.array([0, *(128 - START + die for die in range(1, 7))]) * _ONES
_ROOM = np.array([0, *(128 + HOME - die for die in range(1, 7))]) * _ONES

# Multiplication by _GATHER moves the four top bits of a word to adjacent bits from bit 31 on, 4 bits higher per die.
_SLOTS = np.arange(3)
_GATHER = (1 << 24 | 1 << 17 | 1 << 10 | 1 << 3) << 4 * _SLOTS
_GATHERED = 0xF << (31 + 4 * _SLOTS)

DIE_BITS = 3 * _SLOTS


def _shared_squares() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Words to compare with the opponent's word, indexed by the byte of an own piece.

    Returns:
        Words of the opponent's byte for the same square (127, which no piece has, if no capture is possible), and two
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
    """[216] the hand for each throw of three dice: a 6 rolls again, and three sixes give an empty hand."""
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
    """[turns, k] the legal actions, as twelve bits."""
    dice = (hand >> DIE_BITS[:, None, None]) & 7  # [3, turns, k]
    able = (board + _ENOUGH.take(dice)) & (_ROOM.take(dice) - board) & _TOP_BITS
    able *= _GATHER[:, None, None]
    able &= _GATHERED[:, None, None]
    moves: NDArray[np.int64] = np.bitwise_or.reduce(able, axis=0) >> 31
    return moves


def pieces_on(landing: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The top bit of each of the opponent's pieces that a piece landing there captures."""
    # For equal bytes the xor is 0, and 128 - 0 is the only result with the top bit set.
    return (_TOP_BITS - (other ^ _SAME_SQUARE.take(landing))) & _TOP_BITS


def chasers_of(squares: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the opponent's pieces 1 to 6 behind each of these squares; 0 for safe squares."""
    behind = (_BEFORE.take(squares) - other) & (_BEHIND.take(squares) + other) & _TOP_BITS
    return (((behind >> 7) * _ONES) >> 24) & 7


def swapped(board: NDArray[np.int64]) -> NDArray[np.int64]:
    """The boards from the opponent's side."""
    return (board >> 32) | (board << 32)


def roll(key: NDArray[np.uint64], rolls: NDArray[np.int64]) -> NDArray[np.int64]:
    """Roll the dice of a turn: a hand of one to three dice, or an empty one after three sixes."""
    return _ROLLS.take(below(draws(key, rolls), _THROWS))


def count_dice(hand: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of dice in each hand."""
    bits = np.frexp(hand)[1]  # exact, because hands have fewer than 53 bits
    return (bits.astype(np.int64) + 2) // 3
