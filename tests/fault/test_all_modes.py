"""Faults that behave the same in every mode: env errors, NaN from envs, signals, a learner that raises."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tests.fault.modes import ASYNC, EXACT, FAULT, MODES, config
from tests.inside import inside

from paceline.errors import EnvError, LearnerError, PacelineError, WorkerError
from paceline.train import checkpoint
from paceline.train.callbacks import Callbacks
from paceline.train.run import Run, open_folder

HERE = {"env_index": 6, "at_step": 4, "at_episode": 1}


def failure(settings: Any, kind: type[PacelineError] = PacelineError) -> str:
    with Run(settings) as run:
        pids = run.training.runtime.pids()
        with pytest.raises(kind) as caught:
            run.go()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    return str(caught.value)


PLAIN = [mode for mode in MODES if mode != "threads"]


@pytest.mark.parametrize("mode", PLAIN)
def test_a_step_that_raises_is_one_error_with_all_that_is_needed(mode: str) -> None:
    text = failure(
        config(mode, env_kwargs={"mode": "raise", **HERE}), EnvError if mode == "sequential" else WorkerError
    )
    assert "env 6 (seed 5, episode 1) raised in step 4 with action " in text
    assert "RuntimeError: fault in step, as asked" in text
    assert ("worker 1 (pid " in text) == (mode != "sequential")
    assert ("Its traceback:" in text) == (mode != "sequential")


@pytest.mark.parametrize("mode", PLAIN)
def test_a_reset_that_raises_says_reset(mode: str) -> None:
    kwargs = {"mode": "raise_reset", "env_index": 1, "at_episode": 3, "episode_length": 4}
    text = failure(config(mode, env_kwargs=kwargs), EnvError if mode == "sequential" else WorkerError)
    assert "env 1 (seed 5, episode 3) raised in reset: RuntimeError: fault in reset, as asked" in text
    assert ("worker 0 (pid " in text) == (mode != "sequential")


@pytest.mark.parametrize(
    ("mode", "what"), [*((mode, "nan_obs") for mode in PLAIN), ("sequential", "nan_reward"), ("dqn", "nan_reward")]
)
def test_nan_from_an_env_ends_the_run_and_names_the_env(mode: str, what: str) -> None:
    settings = config(mode, env_kwargs={"mode": what, **HERE})
    with Run(settings) as run:
        with pytest.raises(PacelineError, match="is not finite") as caught:
            run.go()
        assert np.isfinite(run.training.weights.vector.numpy()).all()
    text = str(caught.value)
    assert "env 6 (" in text
    assert "episode 1" in text
    assert ("observation 'obs'" if what == "nan_obs" else "reward") in text
    assert "--on-nan" in text


@pytest.mark.parametrize("mode", ["sequential", "parallel", "a3c", "dqn-async"])
def test_nan_from_an_env_can_be_replaced(mode: str, tmp_path: Path) -> None:
    kwargs = {"mode": "nan_obs", "env_index": 6, "at_episode": 1}
    settings = config(mode, env_kwargs=kwargs, on_nan="replace", output_dir=tmp_path / "run")
    with Run(settings, folder=open_folder(settings)) as run:
        summary = run.go()
        assert np.isfinite(run.training.weights.vector.numpy()).all()
    assert summary.not_finite == 1
    assert summary.skipped_updates == 0
    log = (tmp_path / "run" / "train.log").read_text()
    assert "1 NaN or infinite values, the latest in env 6: replaced with 0" in log


@pytest.mark.parametrize("mode", PLAIN)
def test_with_a_warning_updates_that_suffer_are_left_out_and_counted(mode: str) -> None:
    kwargs = {"mode": "nan_obs", "env_index": 6, "at_episode": 1}
    with Run(config(mode, env_kwargs=kwargs, on_nan="warn")) as run:
        summary = run.go()
        assert np.isfinite(run.training.weights.vector.numpy()).all()
    assert summary.finished
    assert summary.not_finite == 1
    assert summary.skipped_updates >= 1


class Signal:
    """Sends this process a signal after a few updates."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def on_update(self, moment: Any) -> None:
        if moment.iteration == 3:
            os.kill(os.getpid(), self._number)


@pytest.mark.parametrize("mode", PLAIN)
def test_a_signal_ends_at_a_safe_point_with_a_checkpoint_that_goes_on(mode: str, tmp_path: Path) -> None:
    settings = config(mode, "CartPole-v1", output_dir=tmp_path / "run", total_timesteps=10**8)
    with Run(settings, folder=open_folder(settings)) as run:
        summary = run.go(callbacks=Callbacks([Signal(signal.SIGINT)]))
    assert (summary.stop_reason, summary.finished) == ("SIGINT", False)
    assert checkpoint.load(checkpoint.find(tmp_path / "run")).meta["steps"] == summary.steps
    again = settings.merge(resume=True)
    with Run(again, folder=open_folder(again)) as run:
        assert run.training.tracker.steps == summary.steps
        assert any("started a new episode" in note for note in run.notes) == (mode in ASYNC), (
            "only async modes start new episodes"
        )
        assert run.go(steps=500).steps > summary.steps


@pytest.mark.parametrize("mode", MODES)
def test_workers_count_the_steps_that_they_collect(mode: str) -> None:
    with Run(config(mode, "CartPole-v1", total_timesteps=512)) as run:
        assert run.training.collected() == 0
        steps, collected = run.go().steps, run.training.collected()
    if mode in ASYNC:
        assert collected > 0
    else:
        assert 0.9 * steps < collected <= steps if mode == "own pace" else collected == steps


class SecondSignal:
    """Sends Ctrl-C twice when workers have finished the fourth rollout, but the driver has not counted it.

    That is the latest moment at which a rollout is cut off, when most of what workers share has changed.
    """

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self._iteration, restarts = 0, run.training.rollouts.restarts
        wait = restarts.runtime.wait

        def wait_and_interrupt(*args: Any, **kwargs: Any) -> Any:
            done = wait(*args, **kwargs)
            if self._iteration == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return done

        monkeypatch.setattr(restarts.runtime, "wait", wait_and_interrupt)

    def on_update(self, moment: Any) -> None:
        self._iteration = moment.iteration


@pytest.mark.parametrize("mode", PLAIN)
def test_a_second_signal_during_a_rollout_leaves_a_checkpoint_of_the_last_update_that_goes_on(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(mode, "CartPole-v1", output_dir=tmp_path / "run")
    with Run(settings) as run:
        expected = run.go()
    with Run(settings, folder=open_folder(settings)) as run:
        second = SecondSignal(run, monkeypatch)
        summary = run.go(callbacks=Callbacks([second]))
        assert run.cut_off
        assert second._iteration == 3
    assert (summary.stop_reason, summary.finished) == ("SIGINT", False)
    snapshot = checkpoint.load(checkpoint.find(tmp_path / "run"))
    assert snapshot.meta["steps"] == summary.steps
    log = (tmp_path / "run" / "train.log").read_text()
    assert "Ctrl-C: stopping after this rollout" in log
    assert "Ctrl-C: stopping now" in log
    again = settings.merge(resume=True)
    with Run(again, folder=open_folder(again)) as run:
        assert run.training.tracker.steps == summary.steps
        assert any("started a new episode" in note for note in run.notes) == (mode in ASYNC)
        finished = run.go()
    assert finished.finished
    if mode in ("sequential", "own pace", *EXACT) and mode != "pipeline":  # it loses the rollout of an older version
        assert finished.weights_sha256 == expected.weights_sha256


@pytest.mark.parametrize("mode", PLAIN)
def test_learner_that_raises_ends_the_run_and_all_workers(mode: str) -> None:
    with Run(config(mode, env_kwargs={})) as run:
        pids = run.training.runtime.pids()

        def broken(batch: Any, progress: float) -> dict[str, float]:
            raise ArithmeticError("the learner is broken")

        inside(run).learner.update = broken
        with pytest.raises(ArithmeticError, match="broken"):
            run.go()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize("mode", [*EXACT, *ASYNC])
def test_all_workers_may_die_at_once(mode: str) -> None:
    with Run(config(mode)) as run:
        for pid in run.training.runtime.pids():
            os.kill(pid, signal.SIGKILL)
        summary = run.go()
    assert summary.finished
    assert summary.restarts == 2


def test_a_device_without_memory_names_the_settings_and_the_checkpoint(tmp_path: Path) -> None:
    settings = config("dqn", output_dir=tmp_path / "run", save_freq=200)
    with Run(settings, folder=open_folder(settings)) as run:
        update, calls = inside(run).learner.update, [0]

        def short(batch: Any, progress: float) -> Any:
            calls[0] += 1
            if calls[0] > 4:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return update(batch, progress)

        inside(run).learner.update = short
        with pytest.raises(LearnerError) as caught:
            run.go()
    text = str(caught.value)
    for name in ("batch_size=32", "buffer_size=4000", "--learning-steps-per-batch", "Tried to allocate 2.00 GiB"):
        assert name in text, text
    assert "The last checkpoint is " in text


def test_env_without_episode_end_is_reported_and_still_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.train.fault_notes.LONG_EPISODE", 100)
    monkeypatch.setattr("paceline.train.evaluate.Evaluator.__init__.__kwdefaults__", {"max_steps": 50})
    endless = {"episode_length": 10**9}
    settings = config(
        "sequential", FAULT, env_kwargs=endless, output_dir=tmp_path / "run", total_timesteps=2000, n_eval_episodes=2
    )
    with Run(settings, folder=open_folder(settings)) as run:
        summary = run.go()
    assert summary.episodes == 0
    assert summary.final_eval is not None
    assert summary.final_eval.mean_ep_length == 50
    log = (tmp_path / "run" / "train.log").read_text()
    assert "no episode has ended in" in log
    assert "2 of 2 episodes were cut" in log


def test_a_run_by_time_does_not_look_at_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    real, jumps = __import__("time").time, [0.0]

    def jumping() -> float:
        jumps[0] -= 3600.0
        return float(real()) + jumps[0]

    monkeypatch.setattr("time.time", jumping)
    with Run(config("sequential", total_timesteps=10**8)) as run:
        summary = run.go(seconds=0.5)
    assert summary.stop_reason == "duration"
    assert 0.5 <= summary.wall_s < 20.0
