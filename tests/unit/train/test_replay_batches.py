"""The batch schedule of DQN."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from tests.inside import inside

from paceline import DQN
from paceline.config.train_config import TrainConfig
from paceline.train.build import build
from paceline.train.replay_batches import ReplayBatches
from paceline.train.stopping import StopNow
from paceline.train.training import Training

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


def test_groups_are_aligned_after_external_transitions() -> None:
    steps = [(np.full(4, t / 40), t % 2, 1.0, np.full(4, (t + 1) / 40), t == 39) for t in range(40)]
    hashes = []
    for workers in (0, 2):
        with DQN("CartPole-v1", num_workers=workers, n_steps=16, seed=3, **SMALL) as agent:
            agent.add_trajectory(steps)
            agent.learn(512)
            assert agent.summary is not None
            assert agent.summary.steps == 512
            replay = inside(agent._started()).rollouts._ingest.replay
            assert replay.head.tolist() == [10 + 64] * 2
            assert replay.valid(np.arange(74 * 8)).sum() == 40 + 512
            hashes.append(agent.get_weights().tobytes())
    assert hashes[0] == hashes[1]


def rollouts(**settings: Any) -> Training:
    small = {**SMALL, "algo": "dqn", "env": "CartPole-v1", "num_workers": 0, "quiet": True, "n_steps": 16}
    return build(TrainConfig.from_flat(**{**small, **settings}))


def test_a_batch_has_the_requested_rows_and_the_updates_that_are_due() -> None:
    with closing(rollouts(samples_per_insert=2.0, multi_step=1)) as training:
        collector = training.rollouts
        assert isinstance(collector, ReplayBatches)
        collector.reset()
        due = [collector.next(version) for version in range(3)]
        assert training.tracker.steps == 3 * 16 * 8
        assert due == [16, 16, 16], "128 steps times 2 samples in batches of 16"
        assert collector.stored == 3 * 16 * 8


def test_nothing_is_due_before_learning_starts() -> None:
    with closing(rollouts(learning_starts=200)) as training:
        collector = training.rollouts
        assert isinstance(collector, ReplayBatches)
        collector.reset()
        assert collector.next(0) == 0
        assert collector.next(1) > 0


def test_a_checkpoint_during_a_batch_leaves_out_the_rows_that_workers_may_overwrite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(rollouts(buffer_size=512)) as training:
        collector = training.rollouts
        assert isinstance(collector, ReplayBatches)
        collector.reset()
        for version in range(6):
            collector.next(version)
        replay, before = collector._ingest.replay, collector.stored
        monkeypatch.setattr(collector.restarts, "finish", interrupted)
        with pytest.raises(StopNow):
            collector.next(6)
        state = collector.state()
        assert collector.stored < before
        assert (state["replay/floor"] == replay.head + 16 + 1 - replay.shape.rows).all()


def interrupted(*_: object) -> None:
    raise StopNow


def test_a_loaded_collector_continues_with_the_same_rows() -> None:
    with closing(rollouts()) as one, closing(rollouts()) as other:
        first, second = one.rollouts, other.rollouts
        assert isinstance(first, ReplayBatches)
        assert isinstance(second, ReplayBatches)
        first.reset()
        first.next(0)
        assert second.load(first.state()) == []
        assert first.next(1) == second.next(1)
        item = np.arange(32 * 8)
        found, expected = (it._ingest.replay.gather(item) for it in (second, first))
        np.testing.assert_array_equal(found.obs["obs"], expected.obs["obs"])
        np.testing.assert_array_equal(found.action, expected.action)
