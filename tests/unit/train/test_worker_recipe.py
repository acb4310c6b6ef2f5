"""How a worker builds its envs, its policy and its collector."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from paceline.config.train_config import TrainConfig
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots
from paceline.nets.flat import size_of
from paceline.runtime.protocol import Share
from paceline.train.build import build
from paceline.train.worker_recipe import INTERLEAVED_PARTS, WorkerRecipe


def recipe(**settings: Any) -> WorkerRecipe:
    small: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 16, "group_size": 2, "n_steps": 4, "num_workers": 0}
    with closing(build(TrainConfig.from_flat(**{**small, **settings}))) as training:
        return training.plan.base


@pytest.fixture(scope="module")
def plain() -> WorkerRecipe:
    return recipe()


def test_every_process_builds_the_same_network(plain: WorkerRecipe) -> None:
    first, second = (plain.policy.build(plain.shape.spec) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    other = replace(plain.policy, seed=plain.policy.seed + 1).build(plain.shape.spec)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_normalised_observations_have_statistics_that_acting_reads(plain: WorkerRecipe) -> None:
    normalised = recipe(normalize_obs=True)
    assert (plain.acting_names(), plain.norms()) == (["weights"], [])
    assert normalised.acting_names() == ["weights", "norm/obs"]
    assert {"norm/obs"} == {f.name for f in normalised.fields(9, 2)} - {f.name for f in plain.fields(9, 2)}
    assert plain.obs_normaliser(lambda _: np.ones((2, 4), np.float32)) is None
    assert normalised.obs_normaliser(lambda _: np.ones((2, 4), np.float32)) is not None


def test_self_play_keeps_the_opponent_of_each_episode(plain: WorkerRecipe) -> None:
    league = recipe(env="paceline/TicTacToe-v0", opponents={"random": 1.0})
    assert (plain.single, league.single) == (True, False)
    with closing(Arena.create(league.fields(9, 1))) as arena:
        tags = league.tags(arena)
        assert tags
        assert all(len(tag) == 16 for tag in tags.values())
        assert plain.tags(arena) == {}
        del tags


@pytest.mark.parametrize(
    ("groups", "threads", "parts"),
    [(8, 1, [8]), (8, 16, [2, 2, 2, 2]), (3, 6, [1, 1, 1]), (6, 12, [1, 2, 1, 2]), (1, 2, [1])],
)
def test_groups_are_interleaved_only_if_every_env_has_a_thread(
    plain: WorkerRecipe, groups: int, threads: int, parts: list[int]
) -> None:
    found = plain._interleaved_parts(Share(0, 2, groups), threads)
    assert [part.groups for part in found] == parts
    assert [part.first_group for part in found] == [2 + sum(parts[:i]) for i in range(len(parts))]
    assert len(parts) <= INTERLEAVED_PARTS


def test_interleaved_parts_have_at_least_two_envs(plain: WorkerRecipe) -> None:
    single_env_groups = replace(plain, shape=replace(plain.shape, group_size=1))
    assert [part.groups for part in single_env_groups._interleaved_parts(Share(0, 0, 4), 4)] == [2, 2]


@pytest.mark.parametrize(("threads", "lanes"), [(1, 1), (16, INTERLEAVED_PARTS)])
def test_a_collector_fills_the_columns_of_its_share(plain: WorkerRecipe, threads: int, lanes: int) -> None:
    it = replace(plain, env_threads=threads, on_nan="warn")  # free-running envs need on_nan="raise"
    weights = size_of(it.policy.build(it.shape.spec))
    with closing(Arena.create(it.fields(weights, 1))) as arena:
        collector = it.collector(arena, Share(0, 0, 8), [Slots(arena, it.shape)], arena.__getitem__)
        assert len(collector._collectors) == lanes
        collector.reset()
        collector.collect(0)
        collector.close()
        assert arena["valid"].all()
        assert arena["obs/obs"].any(axis=(0, 2)).all()
        del collector


def test_env_threads_are_at_most_one_per_env(plain: WorkerRecipe) -> None:
    it = replace(plain, env_threads=8, env_wait_s=0.02)
    assert it.threads(4) == (4, 0.02)
    assert it.threads(16) == (8, 0.02)


@pytest.mark.parametrize(("waits_s", "threads"), [(0.01, 4), (0.0, 1)])
def test_auto_makes_threads_if_a_temporary_env_waits(
    plain: WorkerRecipe, waits_s: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.train.worker_recipe.wait_s", lambda recipe, seed: waits_s)
    assert replace(plain, env_threads="auto").threads(4) == (threads, waits_s)
    assert replace(plain, env_threads="auto").threads(1) == (1, 0.0), "a single env needs no trial"
