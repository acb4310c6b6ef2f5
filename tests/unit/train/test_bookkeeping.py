"""What happens after each update: notes in the log, evaluation, the best model, checkpoints and the summary."""

from __future__ import annotations

import errno
import math
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.unit.measure.test_tracking import FakeRun, runs

from paceline.config.train_config import TrainConfig
from paceline.errors import NotSaved
from paceline.insight.runs.columns import read_columns
from paceline.insight.runs.listing import listed
from paceline.insight.runs.results import read_run
from paceline.measure.record import ACTIVITIES, PHASES, PROGRESS_HEADER
from paceline.train import checkpoint, evaluation_notes
from paceline.train.callbacks import Callbacks, Moment
from paceline.train.evaluate import Evaluation, Evaluator
from paceline.train.run import Run, open_folder

__all__ = ["runs"]  # a fixture

SMALL: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 0, "n_envs": 4, "n_steps": 16, "hidden_sizes": (8,), "quiet": True,
    "n_eval_episodes": 0, "total_timesteps": 640,
}  # fmt: skip
NAN_ONCE: dict[str, Any] = {
    "env": "paceline.envs.fault:FaultEnv",
    "env_kwargs": {"mode": "nan_obs", "env_index": 2},
    "on_nan": "warn",
}


class LogReader:
    """Counts, after each update, the notes about skipped updates that are in the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[int] = []

    def on_update(self, _: Moment) -> None:
        self.seen.append(self._path.read_text().count("skipped updates so far: "))


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("ppo", {"n_epochs": 1, "batch_size": None}),
        ("ppo", {"n_epochs": 1, "batch_size": None, "num_workers": 2}),
        ("impala", {}),
        ("a3c", {}),
    ],
)
def test_skipped_updates_are_shown_during_the_run(algo: str, settings: dict[str, Any], tmp_path: Path) -> None:
    config = TrainConfig.from_flat(**{**SMALL, **NAN_ONCE, "algo": algo, "output_dir": tmp_path / "run", **settings})
    reader = LogReader(tmp_path / "run" / "train.log")
    with Run(config, folder=open_folder(config)) as run:
        summary = run.go(callbacks=Callbacks([reader]))
    assert summary.skipped_updates == 1
    assert reader.seen[0] == 1, "the step with the NaN is in the first rollout"
    assert set(reader.seen) == {1}, "one note, and no other"


MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {}),
    "pipeline": ("ppo", {"pipeline": True}),
    "impala": ("impala", {}),
    "appo": ("appo", {}),
    "a3c": ("a3c", {}),
    "dqn": ("dqn", {"schedule": "batch", "learning_starts": 100}),
    "dqn async": ("dqn", {"schedule": "async", "learning_starts": 100}),
    "central ppo": ("ppo", {"inference": "central"}),
    "central impala": ("impala", {"inference": "central"}),
    "free-running": ("ppo", {"env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 1.0}}),
}


BARRIER = {"ppo", "pipeline", "dqn", "central ppo", "free-running"}
"""Modes whose driver waits until all workers have collected, and counts what they did meanwhile."""
SHARED_GRADIENTS = {"ppo", "pipeline", "central ppo", "free-running"}
"""Modes whose workers compute shards of the gradient."""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_all_seconds_are_accounted_for_and_steps_per_second_are_steps_by_seconds(
    mode: str, workers: int, tmp_path: Path
) -> None:
    algo, settings = MODES[mode]
    own = {"algo": algo, "num_workers": workers, "output_dir": tmp_path / "run", **settings}
    seldom = {"n_eval_episodes": 1, "eval_freq": 500, "save_freq": 400, "group_size": 2}
    config = TrainConfig.from_flat(**{**SMALL, **seldom, **own, "total_timesteps": 1200})
    longer = TrainConfig.from_flat(**{**SMALL, **seldom, **own, "total_timesteps": 2400, "resume": tmp_path / "run"})
    before = 0
    for each in (config, longer):
        with Run(each, folder=open_folder(each)) as run:
            assert run.training.tracker.steps == before, "no step during start-up"
            summary = run.go()
            before = summary.steps
        phases, wall_s = summary.phases, summary.wall_s
        assert min(phases["eval"], phases["checkpoint"], phases["other"]) > 0.0
        assert sum(phases.values()) == pytest.approx(wall_s, rel=0.01)
        assert summary.training_s == pytest.approx(wall_s - phases["eval"] - phases["checkpoint"])
        assert summary.fps * summary.training_s == pytest.approx(summary.steps)
        assert summary.episodes_per_s * summary.training_s == pytest.approx(summary.episodes)

        columns = read_columns(tmp_path / "run" / "progress.csv", PROGRESS_HEADER)
        took, steps = columns["time/iteration_s"], np.diff(columns["steps"], prepend=0.0)
        apart = columns["time/eval_s"] + columns["time/checkpoint_s"]
        assert sum(columns[f"time/{name}_s"] for name in PHASES) == pytest.approx(took, rel=0.01)
        assert columns["time/fps"] * (took - apart) == pytest.approx(steps)
        assert read_run(tmp_path / "run").fps == listed(tmp_path / "run").fps == summary.fps
        (tmp_path / "run" / "summary.json").rename(tmp_path / "kept.json")
        unfinished = read_run(tmp_path / "run").fps
        assert listed(tmp_path / "run").fps == pytest.approx(unfinished)
        assert unfinished * columns["time/training_s"][-1] == pytest.approx(columns["steps"][-1])
        (tmp_path / "kept.json").rename(tmp_path / "run" / "summary.json")

        # Who steps envs and acts, in every mode: the workers, or without them the driver.
        doing = summary.worker_s if workers else phases
        assert min(doing["env"], doing["inference"]) > 0.0
        if not (workers and mode in SHARED_GRADIENTS):  # any free process computes a shard, also the driver
            assert (doing["learn"] > 0.0) == (not workers or mode == "a3c")
        assert set(summary.worker_s) == (set(ACTIVITIES) if workers else set())
        assert ("env" in phases) == (not workers or mode in BARRIER)
        assert summary.peak_memory_mb is not None
        assert len(summary.worker_peak_mb) == workers
        assert sum(summary.worker_peak_mb) < summary.peak_memory_mb, "the driver is in it too"
        if workers:
            assert min(summary.worker_peak_mb) > 1.0
            assert sum(summary.worker_s.values()) == pytest.approx(sum(took), rel=0.01)
            read = read_run(tmp_path / "run").worker_s
            assert read == pytest.approx(summary.worker_s, rel=0.01, abs=0.01 * sum(took))


def test_a_run_without_skipped_updates_shows_no_note_about_them(tmp_path: Path) -> None:
    config = TrainConfig.from_flat(**{**SMALL, "output_dir": tmp_path / "run"})
    with Run(config, folder=open_folder(config)) as run:
        run.go()
    assert "skipped updates" not in (tmp_path / "run" / "train.log").read_text()


def test_the_best_model_is_the_best_of_those_that_could_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig.from_flat(
        env="CartPole-v1", n_envs=4, n_steps=16, batch_size=64, total_timesteps=64 * 5, num_workers=0, eval_freq=64,
        n_eval_episodes=1, output_dir=tmp_path / "run", quiet=True,
    )  # fmt: skip
    scores, real, full = iter([math.nan, 200.0, 500.0, 480.0, 470.0, 460.0]), checkpoint.save, [False, True, False]
    monkeypatch.setattr(Evaluator, "evaluate", lambda *_, **_watch: Evaluation((next(scores),), (1,)))

    def save(path: Path, *args: Any) -> None:
        if path.name == "best_model" and full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *args)

    monkeypatch.setattr(checkpoint, "save", save)
    with Run(config, folder=open_folder(config)) as run:
        run.go()
    assert checkpoint.load(tmp_path / "run" / "best_model").meta["best_eval"] == [480.0, 1.0]


def test_a_signal_during_an_evaluation_cuts_it_off_and_the_run_ends_with_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Evaluator._play

    def interrupted(self: Evaluator, *args: Any) -> Evaluation:
        play(self, *args)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the evaluation goes on")

    monkeypatch.setattr(Evaluator, "_play", interrupted)
    config = TrainConfig.from_flat(**{**SMALL, "eval_freq": 64, "n_eval_episodes": 1, "output_dir": tmp_path / "run"})
    with Run(config, folder=open_folder(config)) as run:
        summary = run.go()
    assert (summary.stop_reason, summary.steps, summary.iterations) == ("SIGINT", 64, 1)
    assert summary.final_eval is None
    assert checkpoint.find(tmp_path / "run").name == checkpoint.step_name(64)
    assert len((tmp_path / "run" / "progress.csv").read_text().splitlines()) == 2, "the update is recorded"


def test_a_save_that_fails_is_a_note_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig.from_flat(
        env="CartPole-v1",
        n_envs=4,
        n_steps=16,
        batch_size=64,
        total_timesteps=64 * 6,
        num_workers=0,
        save_freq=64,
        keep_checkpoints=2,
        n_eval_episodes=0,
        output_dir=tmp_path / "run",
    )
    real, calls = checkpoint.save, []

    def save(path: Path, *args: Any) -> None:
        calls.append(path.name)
        if len(calls) in (3, 4):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *args)

    monkeypatch.setattr(checkpoint, "save", save)
    with Run(config, folder=open_folder(config)) as run:
        summary = run.go()
    assert summary.finished
    assert calls == [checkpoint.step_name(64 * n) for n in range(1, 7)]
    assert [path.name for path in checkpoint.steps(tmp_path / "run" / "checkpoints")] == calls[-2:]
    shown = "".join(capsys.readouterr())
    assert "No space left on device" in shown.replace("\n", " ")


def test_checkpoints_above_the_file_size_limit_are_a_note_until_the_run_has_ended_without_one(tmp_path: Path) -> None:
    run_config = TrainConfig.from_flat(
        env="CartPole-v1", n_envs=4, n_steps=8, num_workers=0, quiet=True, save_freq=32, total_timesteps=96,
        output_dir=tmp_path / "run", n_eval_episodes=0,
    )  # fmt: skip
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Run(run_config, folder=open_folder(run_config)) as run:
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))  # less than a checkpoint, more than the logs
            with pytest.raises(NotSaved, match=r"the run ended at step 96, .*the last checkpoint"):
                run.go()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == []
    assert "not saved" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize("totals", [(640,), (640, 640), (640, 704)], ids=["new", "nothing left to do", "resumed"])
def test_the_final_evaluation_is_recorded_wherever_the_others_are(
    totals: tuple[int, ...], tmp_path: Path, runs: list[FakeRun]
) -> None:
    folder, resume = tmp_path / "run", False
    for steps in totals:
        own = {"eval_freq": 256, "n_eval_episodes": 1, "total_timesteps": steps, "resume": resume, "track": True}
        config = TrainConfig.from_flat(**{**SMALL, **own, "output_dir": folder})
        with Run(config, folder=open_folder(config)) as run:
            final = run.go().final_eval
        resume = True
    assert final is not None
    columns = read_columns(folder / "progress.csv", PROGRESS_HEADER)
    evaluated = columns["steps"][np.isfinite(columns["eval/mean_reward"])].tolist()
    assert evaluated == [256, 512, *sorted({640, steps})]
    assert columns["eval/mean_reward"][-1] == pytest.approx(final.mean_reward)
    assert np.isfinite(columns["rollout/ep_rew_mean"][-1]), "the row keeps its other numbers"
    events = EventAccumulator(str(folder)).Reload().Scalars("eval/mean_reward")
    assert sorted({event.step for event in events}) == evaluated
    assert events[-1].value == pytest.approx(final.mean_reward)
    assert runs[-1].logged[-1] == (final.scalars(), steps)


def test_a_long_final_evaluation_says_so_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_notes, "FIRST_S", 0.0)
    config = TrainConfig.from_flat(**{**SMALL, "n_eval_episodes": 3, "total_timesteps": 64, "output_dir": tmp_path})
    with Run(config, folder=open_folder(config)) as run:
        run.go()
    assert "final evaluation: 0 of 3 episodes in" in (tmp_path / "train.log").read_text()


def test_the_summary_has_the_newest_statistics(tmp_path: Path) -> None:
    settings = {**SMALL, "env": "paceline/TicTacToe-v0", "algo": "dqn", "n_steps": 4, "learning_starts": 100,
                "output_dir": tmp_path / "run"}  # fmt: skip
    config = TrainConfig.from_flat(**settings)
    with Run(config, folder=open_folder(config)) as run:
        summary = run.go()
    found, result = summary.statistics, read_run(tmp_path / "run")
    assert {"train/elo", "train/win_rate_random", "train/loss", "train/epsilon", "train/buffer_size"} <= found.keys()
    assert found == {tag: pytest.approx(result.newest(tag)) for tag in found}
    assert result.episodes_per_s == pytest.approx(summary.episodes_per_s)
    log = (tmp_path / "run" / "train.log").read_text()
    assert f"at the end: Elo {found['train/elo']:,.0f}, win rate against random" in log
