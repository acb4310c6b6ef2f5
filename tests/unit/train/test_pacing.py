"""The ratio of updates to env steps in both schedules of DQN."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config.dqn_settings import DQNConfig
from paceline.train.pacing import BatchPace, Limiter


def test_batches_of_episodes_have_one_update_per_episode() -> None:
    pace = BatchPace(DQNConfig(learning_starts=100, episodes_per_batch=4), groups=6)
    assert [pace.updates(stored, 50) for stored in (50, 99, 100, 150)] == [0, 0, 24, 24]


def test_the_number_of_updates_per_batch_can_be_set() -> None:
    pace = BatchPace(DQNConfig(learning_starts=1, learning_steps_per_batch=7), groups=6)
    assert pace.updates(50, 50) == 7


def test_a_fraction_of_an_update_is_carried_over() -> None:
    pace = BatchPace(DQNConfig(learning_starts=1, samples_per_insert=4, batch_size=64), groups=6)
    # 30 steps ask for 120 samples, which are 1.875 updates.
    updates = [pace.updates(30 * (i + 1), 30) for i in range(8)]
    assert updates == [1, 2, 2, 2, 2, 2, 2, 2]
    assert sum(updates) == 8 * 30 * 4 / 64


@given(
    spi=st.floats(0.1, 50),
    batch=st.integers(1, 512),
    order=st.integers(1, 2000),
    workers=st.integers(1, 8),
    starts=st.integers(1, 5000),
    seed=st.integers(0, 1000),
)
def test_the_limiter_keeps_the_ratio_and_is_no_deadlock(
    spi: float, batch: int, order: int, workers: int, starts: int, seed: int
) -> None:
    config = DQNConfig(
        schedule="async", samples_per_insert=spi, batch_size=batch, learning_starts=starts, spi_tolerance=0.1
    )
    limiter = Limiter(config, under_way=2 * workers * order)
    inserts = samples = 0
    under_way = 0
    for turn in range(300):
        updates = limiter.updates(inserts, samples)
        plays = under_way < 2 * workers and limiter.may_play(inserts + (under_way + 1) * order, samples)
        assert updates or plays or under_way, "neither workers nor learner can continue"
        # One side that can continue does so; which one depends on the seed.
        if plays and (turn * 7 + seed) % 3:
            under_way += 1
        elif under_way and (turn + seed) % 2:
            under_way -= 1
            inserts += order
        elif updates:
            samples += min(updates, 5) * batch
        if inserts < starts:
            assert samples == 0, "nothing is learned before learning_starts"
        else:
            assert limiter.ahead(inserts, samples) <= limiter.max_ahead + 1e-6
            assert -limiter.ahead(inserts, samples) <= limiter.max_ahead + 1e-6


def test_the_limit_allows_for_all_steps_under_way() -> None:
    config = DQNConfig(schedule="async", samples_per_insert=8, batch_size=64, learning_starts=100, spi_tolerance=0.1)
    assert Limiter(config, under_way=1000).max_ahead == 8000
    assert Limiter(config, under_way=1).max_ahead == pytest.approx(80)
