"""The async schedule of DQN."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.inside import inside

from paceline import DQN
from paceline.config.train_config import TrainConfig
from paceline.train.build import build
from paceline.train.pacing import Limiter
from paceline.train.replay_stream import ReplayStream
from paceline.train.run import Run, open_folder

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_per_insert_stay_within_the_tolerance(workers: int, tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "num_workers": workers, "prioritized": True, "quiet": True, "total_timesteps": 4000,
    }  # fmt: skip
    with Run(TrainConfig.from_flat(**settings)) as run:
        rollouts, learner, ahead = inside(run).rollouts, inside(run).learner, []
        assert isinstance(rollouts, ReplayStream)
        limiter: Limiter = rollouts._limiter
        release = rollouts.release

        def watched() -> None:
            ahead.append(limiter.ahead(run.training.tracker.steps, learner.samples))
            release()

        rollouts.release = watched  # type: ignore[method-assign]
        summary = run.go()
        assert summary.steps >= 4000
        assert max(map(abs, ahead)) <= limiter.max_ahead
        ratio = learner.samples / (summary.steps - settings["learning_starts"])
        assert abs(ratio - 2.0) <= limiter.max_ahead / (summary.steps - settings["learning_starts"])


def test_no_step_is_requested_before_the_first_batch() -> None:
    """So no step is taken during start-up: the first iteration would count its steps but not its time."""
    settings = {**SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "n_steps": 8, "num_workers": 0}
    with closing(build(TrainConfig.from_flat(**settings))) as training:
        stream = training.rollouts
        assert isinstance(stream, ReplayStream)
        stream.reset()
        assert not stream._pending
        stream.next(0)
        assert training.tracker.steps >= SMALL["learning_starts"]


def test_a_resumed_run_aligns_groups_whose_heads_differed(tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "quiet": True, "total_timesteps": 800, "output_dir": tmp_path / "run",
    }  # fmt: skip
    config = TrainConfig.from_flat(**settings, num_workers=2)
    with Run(config, folder=open_folder(config)) as run:
        run.go()
        rollouts = inside(run).rollouts
        assert isinstance(rollouts, ReplayStream)
        state = rollouts.state()
    state["replay/head"][:] = [80, 64]  # group 1 was behind
    with closing(build(TrainConfig.from_flat(**{**settings, "output_dir": None}, num_workers=0))) as other:
        stream = other.rollouts
        assert isinstance(stream, ReplayStream)
        stream.load(state)
        replay = stream._ingest.replay
        assert replay.head.tolist() == [80, 80]
        stream._request_more()
        while other.tracker.steps == 0:
            stream._receive(0.0)
        rows = int(replay.head[0]) - 80
        assert other.tracker.steps == rows * 8, "all that was taken in had been played"


def test_resuming_without_the_replay_buffer_waits_for_learning_starts(tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "quiet": True, "save_replay": False, "num_workers": 0, "total_timesteps": 800, "output_dir": tmp_path / "run",
    }  # fmt: skip
    config = TrainConfig.from_flat(**settings)
    with Run(config, folder=open_folder(config)) as run:
        run.go()
        state = inside(run).rollouts.state()
    with closing(build(TrainConfig.from_flat(**{**settings, "output_dir": None}))) as other:
        stream = other.rollouts
        assert isinstance(stream, ReplayStream)
        other.tracker.steps = 800
        stream.load(state)
        assert stream.stored == 0
        stream.next(0)
        assert stream.stored >= SMALL["learning_starts"]


def test_an_empty_replay_buffer_is_no_deadlock() -> None:
    """Returns of 50 steps need 50 rows before there is anything to learn from, more than the limiter would allow."""
    with DQN(
        "CartPole-v1", num_workers=0, n_envs=8, schedule="async", multi_step=50, learning_starts=100, n_eval_episodes=0
    ) as agent:
        agent.learn(1000)
        assert agent.summary is not None
        assert agent.summary.steps >= 1000
