"""The opponent pool's arrays in shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.memory.opponent_pool import DRAW, LOSS, WIN, OpponentPool
from paceline.memory.shared import Arena

SLOTS, FIXED, WEIGHTS, N_ENVS = 3, 2, 7, 4


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(OpponentPool.fields(slots=SLOTS, fixed=FIXED, weights=WEIGHTS, n_envs=N_ENVS))
    yield made
    made.close()


def test_fixed_players_have_odds_and_results_but_no_weights(arena: Arena) -> None:
    pool = OpponentPool(arena)
    assert pool.weights.shape == (SLOTS, WEIGHTS)
    assert pool.born.shape == (SLOTS,)
    assert pool.odds.shape == (FIXED + SLOTS,)
    assert pool.results.shape == (N_ENVS, FIXED + SLOTS, 3)
    assert pool.opponent.shape == pool.epsilon.shape == (N_ENVS,)


def test_workers_and_driver_see_the_same_pool(arena: Arena) -> None:
    driver, worker = OpponentPool(arena), OpponentPool(arena)
    driver.odds[:] = 0.2
    driver.next_epsilon[0] = 0.5
    assert worker.odds.tolist() == [0.2] * 5
    worker.opponent[1] = 4
    for outcome in (WIN, WIN, DRAW, LOSS):
        worker.results[1, 4, outcome] += 1
    assert driver.results[1, 4].tolist() == [1, 1, 2], "losses, draws, wins"
    assert driver.next_epsilon[0] == worker.next_epsilon[0] == 0.5


def test_tags_are_views_of_the_state_of_each_env(arena: Arena) -> None:
    pool = OpponentPool(arena)
    tags = pool.tags()
    assert {name: len(array) for name, array in tags.items()} == dict.fromkeys(
        ("opponent", "opponent_epsilon", "results"), N_ENVS
    )
    pool.opponent[2], pool.epsilon[2], pool.results[2, 0, WIN] = 3, 0.25, 9
    assert tags["opponent"][2] == 3
    assert tags["opponent_epsilon"][2] == 0.25
    assert tags["results"][2, 0, WIN] == 9
