"""The bit arithmetic of Ludo, against the same rules piece by piece."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.domains.games.playing import seeds

from paceline.domains.games.ludo import Ludo
from paceline.domains.games.ludo_words import (
    HALF_LAP,
    HOME,
    SAFE,
    START,
    YARD,
    chasers_of,
    count_dice,
    legal_moves,
    pieces_on,
    roll,
    swapped,
)
from paceline.ops.random_bits import below, draws, mix


class Throws:
    """The dice that a board of the engine rolls, one throw after another."""

    def __init__(self, seed: int, used: int = 0) -> None:
        self.key, self.used = mix(seeds(seed)), used

    def __call__(self) -> tuple[int, int, int]:
        number = int(below(draws(self.key, np.array([self.used])), np.uint64(216))[0])
        self.used += 1
        return number // 36 + 1, number // 6 % 6 + 1, number % 6 + 1


def test_dice_are_fair() -> None:
    game = Ludo(1)
    game.reset(np.array([0]), seeds(5))
    throws = Throws(5)
    dice: NDArray[np.int64] = np.array([throws() for _ in range(6000)])
    for which in dice.T:
        share = np.bincount(which, minlength=7)[1:] / len(dice)
        np.testing.assert_allclose(share, 1 / 6, atol=0.02)


BYTES = st.sampled_from([YARD, *range(START, HOME + 1)])
SIDE = st.lists(BYTES, min_size=4, max_size=4)
HAND = st.lists(st.integers(1, 6), max_size=17)


def word(side: list[int]) -> int:
    return sum(byte << 8 * piece for piece, byte in enumerate(side))


def hand_of(dice: list[int]) -> int:
    return sum(die << 3 * place for place, die in enumerate(dice))


def array(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


@given(SIDE, SIDE, HAND)
def test_legal_moves_are_those_of_each_die_and_piece(mine: list[int], theirs: list[int], dice: list[int]) -> None:
    moves = legal_moves(array(word(mine) | word(theirs) << 32)[None], array(hand_of(dice))[None])[0, 0]
    expected = 0
    for place, die in enumerate(dice[:3]):
        for piece, byte in enumerate(mine):
            if die == 6 if byte == YARD else byte + die <= HOME:
                expected |= 1 << 4 * place + piece
    assert moves == expected


def shared(mine: int) -> int | None:
    """The opponent's byte for the square of an own piece; None if no capture is possible there."""
    count = mine - START
    if mine < START or count > 50 or SAFE[mine]:
        return None
    return START + (count + HALF_LAP) % 52


@given(BYTES, SIDE)
def test_captures_and_chasers_are_counted_piece_by_piece(square: int, theirs: list[int]) -> None:
    same = shared(square)
    caught = pieces_on(array(square), array(word(theirs)))[0]
    assert caught == sum(0x80 << 8 * piece for piece, byte in enumerate(theirs) if byte == same)
    behind = 0 if same is None else sum(byte >= START and 1 <= same - byte <= 6 for byte in theirs)
    assert chasers_of(array(square), array(word(theirs)))[0] == behind


@given(SIDE, SIDE)
def test_swapping_exchanges_the_sides_and_swapping_twice_changes_nothing(mine: list[int], theirs: list[int]) -> None:
    board = array(word(mine) | word(theirs) << 32)
    assert swapped(board)[0] == word(theirs) | word(mine) << 32
    assert swapped(swapped(board))[0] == board[0]


@given(HAND)
def test_dice_are_counted(dice: list[int]) -> None:
    assert count_dice(array(hand_of(dice)))[0] == len(dice)


def test_a_roll_goes_on_after_a_six_and_three_sixes_are_nothing() -> None:
    throws = Throws(9)
    rolled = roll(np.repeat(throws.key, 2000), np.arange(2000))
    found = set()
    for number in rolled.tolist():
        first, second, third = throws()
        dice = [first, *([second] if first == 6 else []), *([third] if first == second == 6 else [])]
        assert number == (0 if dice == [6, 6, 6] else hand_of(dice))
        found.add(len(dice))
    assert found == {1, 2, 3}
    assert 0 in rolled
