from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.domains.games.playing import play, rows_of, seeds
from tests.unit.domains.games.slow import SlowLudo

from paceline.domains.games.ludo import Ludo
from paceline.domains.games.ludo_words import START
from paceline.envs.game import IllegalMove
from paceline.ops.random_bits import below, draws, mix

SEEDS = st.integers(0, 2**64 - 1)
COUNTS = st.lists(st.integers(-1, 56), min_size=4, max_size=4)


class Throws:
    """The dice that a board of the engine rolls, one throw after another."""

    def __init__(self, seed: int, used: int = 0) -> None:
        self.key, self.used = mix(seeds(seed)), used

    def __call__(self) -> tuple[int, int, int]:
        number = int(below(draws(self.key, np.array([self.used])), np.uint64(216))[0])
        self.used += 1
        return number // 36 + 1, number // 6 % 6 + 1, number % 6 + 1


def check(game: Ludo, row: int, slow: SlowLudo) -> None:
    assert game.counts(row) == slow.counts
    assert game.hand(row) == slow.hand
    assert bool(game.over[row]) == (slow.winner is not None)
    assert set(np.flatnonzero(game.legal(np.array([row]))[0])) == slow.legal()
    if slow.winner is None:
        assert game.mover[row] == slow.mover
    else:
        assert game.winner[row] == slow.winner


def check_observation(game: Ludo, row: int, slow: SlowLudo) -> None:
    for seat in (0, 1):
        seen = game.observe(np.array([row]), np.array([seat], np.int8))[0]
        np.testing.assert_allclose(seen, slow.observation(seat), rtol=1e-6)


@given(st.lists(SEEDS, min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_whole_games_equal_the_slow_reference(numbers: list[int], choices: random.Random) -> None:
    game = Ludo(len(numbers))
    game.reset(rows_of(game), seeds(*numbers))
    slow = [SlowLudo(Throws(number)) for number in numbers]
    while not game.over.all():
        rows = np.flatnonzero(~game.over)
        for row in rows:
            check(game, int(row), slow[row])
        actions = np.array([choices.choice(sorted(slow[row].legal())) for row in rows])
        for row, action in zip(rows, actions, strict=True):
            slow[row].play(int(action))
        game.play(rows, actions)
    for row in rows_of(game):
        check(game, int(row), slow[row])


def arranged(seed: int, counts: list[list[int]], mover: int, hand: list[int]) -> tuple[Ludo, SlowLudo]:
    """The same position on a board of the engine and on a slow one."""
    game, slow = Ludo(1), SlowLudo(Throws(seed))
    game.reset(np.array([0]), seeds(seed))
    slow.counts, slow.mover, slow.hand = [list(side) for side in counts], mover, list(hand)
    slow.throw = Throws(seed, int(game.state["rolls"][0]))
    pieces = [count + START if count >= 0 else 0 for side in (counts[mover], counts[1 - mover]) for count in side]
    game.state["board"][0] = sum(byte << 8 * place for place, byte in enumerate(pieces))
    game.state["hand"][0] = sum(die << 3 * place for place, die in enumerate(hand))
    game.state["mover"][0] = mover
    game.state["moves"][0] = sum(1 << action for action in slow.legal())
    return game, slow


@given(SEEDS, st.tuples(COUNTS, COUNTS), st.integers(0, 1), st.lists(st.integers(1, 6), min_size=1, max_size=15))
@settings(max_examples=150)
def test_every_move_of_any_position_equals_the_slow_reference(
    seed: int, counts: tuple[list[int], list[int]], mover: int, hand: list[int]
) -> None:
    assume(all(side != [56] * 4 for side in counts))
    game, slow = arranged(seed, list(counts), mover, hand)
    check_observation(game, 0, slow)
    actions = sorted(slow.legal())
    assume(actions)
    for action in actions:
        game, slow = arranged(seed, list(counts), mover, hand)
        play(game, 0, action)
        slow.play(action)
        check(game, 0, slow)
        check_observation(game, 0, slow)


@pytest.mark.parametrize(
    ("mine", "theirs", "die", "sent_back"),
    [
        (1, 30, 3, True),  # my 4 is the other's 30
        (30, 6, 2, True),  # my 32 is the other's 6
        (4, 34, 4, False),  # my 8 is the other's 34: safe
        (22, 51, 3, False),  # my 25 is no square of the other's; 51 is in its home column
        (-1, 26, 6, False),  # my 0 is the other's 26: safe
    ],
)
def test_captures_by_hand(mine: int, theirs: int, die: int, sent_back: bool) -> None:
    game, _ = arranged(1, [[mine, 40, 40, 40], [theirs, 1, 1, 1]], 0, [die, 1])
    rolls = int(game.state["rolls"][0])
    play(game, 0, 0)
    assert (game.counts(0)[1][0] == -1) == sent_back
    assert (int(game.state["rolls"][0]) > rolls) == sent_back, "a capture rolls again, and only that"


def test_one_piece_per_landing() -> None:
    game, _ = arranged(1, [[1, 40, 40, 40], [1, 30, 30, 1]], 0, [3, 1])
    play(game, 0, 0)
    assert game.counts(0)[1] == [1, -1, 30, 1]


def test_the_last_piece_home_wins_at_once() -> None:
    game, _ = arranged(1, [[1, 2, 3, 4], [56, 56, 53, 56]], 1, [3, 6, 6])
    play(game, 0, 2)
    assert game.over[0]
    assert game.winner[0] == 1
    assert not game.legal(np.array([0])).any()
    assert game.counts(0) == [[1, 2, 3, 4], [56] * 4]
    assert "player 1 has won" in game.text(0)


def test_three_sixes_in_a_row_give_nothing() -> None:
    sixes = 0
    throws = Throws(3)
    while throws() != (6, 6, 6):
        sixes += 1
    game, slow = arranged(3, [[10, 40, 40, 40], [1, 1, 1, 1]], 0, [1])
    game.state["rolls"][0] = sixes
    slow.throw = Throws(3, sixes)
    play(game, 0, 0)
    slow.play(0)
    check(game, 0, slow)
    assert game.mover[0] == 0, "the opponent rolled three sixes: the turn came back"
    assert game.state["rolls"][0] == sixes + 2


def test_a_random_game_is_as_long_as_it_should_be() -> None:
    game = Ludo(400)
    game.reset(rows_of(game), np.arange(400, dtype=np.uint64))
    draw = np.random.default_rng(0)
    decisions = 0
    first_movers = game.mover.copy()
    while not game.over.all():
        rows = np.flatnonzero(~game.over)
        weights = game.legal(rows) * draw.random((len(rows), 12))
        game.play(rows, weights.argmax(axis=1))
        decisions += len(rows)
    assert 140 < decisions / 400 < 175
    assert 0.4 < game.winner.mean() < 0.6
    assert 0.4 < first_movers.mean() < 0.5, "player 0 rolls first, but needs a 6 for the first move"


def test_text_and_names_of_moves() -> None:
    game, _ = arranged(1, [[-1, 12, 12, 53], [0, 25, 38, 56]], 0, [5, 6, 6, 2])
    text = game.text(0)
    lines = text.splitlines()
    assert lines[0] == "Ludo, player 0 (A) to move, dice 5 6 6 (then 2)"
    assert max(map(len, lines)) <= 80
    assert "A23B3" in text, "player 1's 38 is player 0's 12"
    assert "player 0: A1 in the yard, A2 on 12, A3 on 12, A4 3 from home" in text
    assert "player 1: B1 on 0, B2 on 25, B3 on 38, B4 home" in text
    assert lines[8].split()[-1] == "B2", "player 1's 25 is the square that player 0 never stands on"
    assert game.move_name(0, 1) == "die 5: piece 2 from 12 to 17"
    assert game.move_name(0, 4) == "die 6: piece 1 leaves the yard"
    game, _ = arranged(1, [[1, 50, 40, 40], [30, 1, 1, 1]], 0, [3, 6])
    assert game.move_name(0, 0) == "die 3: piece 1 from 1 to 4 and captures"
    assert game.move_name(0, 5) == "die 6: piece 2 from 50 to home"
    with pytest.raises(IllegalMove, match="action 8 is not legal"):
        game.move_name(0, 8)
