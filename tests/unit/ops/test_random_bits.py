"""Counter-based random numbers: independent streams and uniform draws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.ops.random_bits import below, draws, mix, pick


def test_mix_is_splitmix64() -> None:
    # The first numbers of the published generator with seed 0: its state grows by the golden ratio at each.
    states = np.array([0x9E3779B97F4A7C15 * i % 2**64 for i in (1, 2, 3)], np.uint64)
    assert [hex(number) for number in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert np.array_equal(draws(np.zeros(3, np.uint64), np.array([1, 2, 3])), mix(states))


def test_keys_and_counters_have_draws_of_their_own() -> None:
    keys = mix(np.arange(300, dtype=np.uint64))
    assert len(np.unique(draws(keys, np.arange(300)[:, None]))) == 300 * 300


@given(st.integers(1, 2**31), st.integers(0, 2**32))
def test_below_is_less_than_its_bound(bound: int, seed: int) -> None:
    numbers = below(mix(np.arange(200, dtype=np.uint64) + np.uint64(seed)), np.uint64(bound))
    assert numbers.min() >= 0
    assert numbers.max() < bound


def test_below_reaches_every_number_equally_often() -> None:
    counts = np.bincount(below(mix(np.arange(60_000, dtype=np.uint64)), np.uint64(6)))
    assert len(counts) == 6
    assert (abs(counts - 10_000) < 400).all()


def test_pick_draws_from_what_is_allowed_equally_often() -> None:
    allowed = np.array([[False, True, True, False, True], [True, False, False, False, False]])
    picked = pick(allowed.repeat(30_000, axis=0), mix(np.arange(60_000, dtype=np.uint64)))
    counts = np.bincount(picked[:30_000], minlength=5)
    assert (counts[[0, 3]] == 0).all()
    assert (abs(counts[[1, 2, 4]] - 10_000) < 400).all()
    assert (picked[30_000:] == 0).all()
