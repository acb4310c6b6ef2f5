"""Seeds of episodes and groups do not repeat and look random."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.envs import seeding
from paceline.envs.seeding import episode_seed, group_seed

seeds = st.integers(0, 2**63 - 1)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, episode=st.integers(0, 10**9), start=st.integers(0, 2**31 - 3000))
def test_no_two_envs_share_an_episode_seed(seed: int, episode: int, start: int) -> None:
    drawn = [episode_seed(seed, env, episode) for env in range(start, start + 2000)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= s < 2**31 for s in drawn)


def test_the_permutation_is_onto() -> None:
    # All steps work modulo 2**31 and odd factors have inverses: undo them one by one.
    inverse = [pow(factor, -1, 2**31) for factor in (0x2C1B3C6D, 0x297A2D39)]
    key = seeding._key(5, 9, 0x5851F42D4C957F2D)
    for env in (0, 1, 12345, 2**31 - 1):
        x = episode_seed(5, env, 9)
        x ^= (x >> 14) ^ (x >> 28)
        x = (x * inverse[1] - (key >> 33)) % 2**31
        x ^= (x >> 15) ^ (x >> 30)
        assert (x * inverse[0] % 2**31) ^ (key & (2**31 - 1)) == env


def test_episodes_and_runs_do_not_repeat_each_other() -> None:
    drawn = {episode_seed(seed, env, episode) for seed in range(20) for env in range(20) for episode in range(20)}
    assert len(drawn) > 8000 - 20  # Chance alone makes about 0.01 collisions.


def test_bits_look_random() -> None:
    drawn = [episode_seed(0, env, 0) for env in range(4096)]
    for bit in range(31):
        ones = sum(s >> bit & 1 for s in drawn)
        assert 1800 < ones < 2300, f"bit {bit}: {ones} of 4096"


@settings(deadline=None, max_examples=30)
@given(seed=seeds, epoch=st.integers(0, 10**6))
def test_seeds_of_groups_do_not_overlap_if_envs_add_their_index(seed: int, epoch: int) -> None:
    drawn = sorted(group_seed(seed, group, epoch) for group in range(1000))
    assert min(b - a for a, b in itertools.pairwise(drawn)) >= 1024
    assert 0 <= drawn[0] <= drawn[-1] < 2**31


def test_a_restarted_group_does_not_repeat_its_episodes() -> None:
    assert len({group_seed(3, 0, epoch) for epoch in range(100)}) == 100
