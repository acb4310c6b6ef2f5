from __future__ import annotations

import csv
import errno
import logging
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.hparams import metadata

from paceline.errors import CheckpointError
from paceline.measure.episodes import Episodes
from paceline.measure.folder import EVENTS, LOGS, RunFolder
from paceline.measure.record import TAGS, EvaluationRow, Iteration, RunRecord, WorkerActivity, tensorboard_tag

DESIGN = {
    "rollout": ["ep_rew_mean", "ep_len_mean", "success_rate", "n_completed_episodes"],
    "time": [
        "fps",
        "episodes_per_s",
        "iteration_s",
        "time_elapsed",
        "training_s",
        "collect_s",
        "learn_s",
        "sync_s",
        "wait_s",
        "eval_s",
        "checkpoint_s",
        "record_s",
        "other_s",
    ],
    "train": [
        "loss",
        "policy_gradient_loss",
        "value_loss",
        "entropy_loss",
        "approx_kl",
        "clip_fraction",
        "clip_range",
        "explained_variance",
        "std",
        "learning_rate",
        "n_updates",
    ],
    "eval": ["mean_reward", "mean_ep_length", "success_rate"],
    "parallel": [
        "policy_lag_mean",
        "policy_lag_max",
        "worker_env_frac",
        "worker_inference_frac",
        "worker_learn_frac",
        "worker_idle_frac",
        "learner_idle_frac",
        "workers_alive",
        "worker_restarts",
        "dropped_steps",
        "bytes_per_step",
    ],
    "system": ["cpu_percent", "cpu_others_percent", "cpu_waiting_percent", "cpu_throttled_percent", "pss_mb"],
}
DESIGN_TAGS = [f"{group}/{name}" for group, names in DESIGN.items() for name in names]


def iteration(number: int, **changes: Any) -> Iteration:
    full = Iteration(
        iteration=number,
        steps=100 * number,
        episodes=3 * number,
        wall_s=0.5 * number,
        training_s=0.4 * number,
        iteration_steps=100,
        iteration_episodes=3,
        iteration_s=0.5,
        ep_rew_mean=20.0 + number,
        ep_len_mean=21.0,
        success_rate=0.75,
        phases={
            "collect": 0.3,
            "learn": 0.1,
            "sync": 0.01,
            "wait": 0.02,
            "eval": 0.05,
            "checkpoint": 0.05,
            "record": 0.02,
        },
        train={name: float(i) for i, name in enumerate(DESIGN["train"])},
        evaluation=EvaluationRow(490.5, 480.25, 0.5),
        parallel={name: float(i) for i, name in enumerate(DESIGN["parallel"])},
        system={name: 10.0 * i for i, name in enumerate(DESIGN["system"])},
    )
    return replace(full, **changes)


def ended(*steps: int) -> Episodes:
    n = len(steps)
    step = np.array(steps, np.int64)
    return Episodes(
        np.arange(n, dtype=np.int64), np.arange(n, dtype=np.int64) % 4, step, step / 8, np.full(n, 9, np.int64)
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    """Every scalar as TensorBoard reads it."""
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", env="E", algo="ppo", seed=0)


def test_tensorboard_reads_every_tag_of_the_design(folder: RunFolder) -> None:
    assert sorted(TAGS) == sorted(DESIGN_TAGS)
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
        record(iteration(2))
    found = events(folder)
    assert sorted(found) == sorted(map(tensorboard_tag, DESIGN_TAGS))
    for tag, points in found.items():
        assert [step for step, _ in points] == [100, 200], tag
    assert found["rollout/ep_rew_mean"] == [(100, 21.0), (200, 22.0)]
    assert [value for _, value in found["time/fps"]] == pytest.approx([250.0, 250.0]), "0.1 s of 0.5 s do not count"
    assert found["time/episodes_per_s"][0][1] == pytest.approx(7.5)
    assert found["time/collect_s"][0][1] == pytest.approx(0.3)
    assert found["eval/mean_ep_length"][0][1] == 480.25
    assert found["train/n_updates"][0][1] == 10.0


def test_progress_has_a_row_for_each_iteration_under_the_same_names(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
        record(iteration(2, evaluation=None, ep_rew_mean=None, ep_len_mean=None, success_rate=None, parallel={}))
    first, second = rows(folder / "progress.csv")
    assert list(first) == ["iteration", "steps", "episodes", *TAGS]
    assert (first["iteration"], first["steps"], first["episodes"]) == ("1", "100", "3")
    assert float(first["eval/mean_reward"]) == 490.5
    assert float(first["time/time_elapsed"]) == 0.5
    assert second["eval/mean_reward"] == second["rollout/ep_rew_mean"] == second["parallel/workers_alive"] == ""
    assert second["train/loss"] == "0"


def test_tensorboard_shows_evaluations_rollouts_and_learning_first() -> None:
    groups = sorted({tensorboard_tag(tag).split("/")[0] for tag in TAGS})
    assert groups == ["eval", "rollout", "time", "train", "usage", "workers"]
    assert len({tensorboard_tag(tag) for tag in TAGS}) == len(TAGS)


def test_tensorboard_calls_a_run_by_its_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with closing(RunRecord(RunFolder.create(tmp_path / name, env="E", algo="ppo", seed=0))) as record:
            record(iteration(1))
    assert sorted(EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload().Runs()) == ["first", "second"]


def test_a_resumed_run_of_an_earlier_version_stays_one_run_in_tensorboard(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
    (folder / LOGS).mkdir()
    for file in folder.path.glob(EVENTS + "*"):
        file.rename(folder / LOGS / file.name)
    with closing(RunRecord(folder, resume_steps=100)) as record:
        record(iteration(2))
    runs = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    assert list(runs.Runs()) == [LOGS]
    assert events(RunFolder(folder / LOGS))["rollout/ep_rew_mean"] == [(100, 21.0), (200, 22.0)]


def test_tensorboards_table_of_runs_has_the_settings(folder: RunFolder) -> None:
    settings: dict[str, bool | float | str] = {"algo": "ppo", "learning_rate": 0.5, "pipeline": True, "n_envs": 8}
    with closing(RunRecord(folder, hparams=settings)) as record:
        record(iteration(1))
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    found = provider.list_tensors(RequestContext(), experiment_id="", plugin_name=metadata.PLUGIN_NAME)
    (tags,) = found.values()
    content = tags[metadata.SESSION_START_INFO_TAG].plugin_content
    shown = metadata.parse_session_start_info_plugin_data(content).hparams
    assert {name: getattr(value, value.WhichOneof("kind")) for name, value in shown.items()} == settings


def test_a_number_that_is_missing_has_no_event(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1, evaluation=None))
    assert "eval/mean_reward" not in events(folder)


def test_an_evaluation_after_the_last_iteration_is_in_its_row_and_in_tensorboard(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1, evaluation=None))
        record(iteration(2, evaluation=None))
        record.evaluated(200, EvaluationRow(490.5, 480.25))
    first, second = rows(folder / "progress.csv")
    assert (first["eval/mean_reward"], second["eval/mean_reward"], second["eval/mean_ep_length"]) == (
        "",
        "490.5",
        "480.25",
    )
    assert second["rollout/ep_rew_mean"] == "22", "the row keeps its other numbers"
    found = events(folder)
    assert found["eval/mean_reward"] == [(200, 490.5)]
    assert found["rollout/ep_rew_mean"] == [(100, 21.0), (200, 22.0)]


def test_whole_numbers_and_float32_survive_the_table(folder: RunFolder) -> None:
    value = float(np.float32(np.pi))
    with closing(RunRecord(folder)) as record:
        record(iteration(1, train={"n_updates": 1_234_567_890_123, "loss": value}))
    (row,) = rows(folder / "progress.csv")
    assert row["train/n_updates"] == "1234567890123"
    assert np.float32(row["train/loss"]) == np.float32(value)


def test_episodes_have_a_row_each(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1), ended(40, 80))
        record(iteration(2), ended())
        record(iteration(3))
    assert rows(folder / "episodes.csv") == [
        {"step": "40", "env": "0", "return": "5", "length": "9", "wall_s": "0.5"},
        {"step": "80", "env": "1", "return": "10", "length": "9", "wall_s": "0.5"},
    ]


def test_unknown_tag_is_refused_unless_announced(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record, pytest.raises(ValueError, match="unknown tags train/epsilon"):
        record(iteration(1, train={"epsilon": 0.1}))
    with closing(RunRecord(folder, extra_tags=("train/epsilon",))) as record:
        record(iteration(1, train={"epsilon": 0.1}))
    assert rows(folder / "progress.csv")[0]["train/epsilon"] == "0.1"


@pytest.mark.parametrize("torn", [False, True])
def test_resumed_tables_equal_the_uninterrupted_ones(tmp_path: Path, torn: bool) -> None:
    straight = RunFolder.create(tmp_path / "straight", env="E", algo="ppo", seed=0)
    with closing(RunRecord(straight)) as record:
        for number in range(1, 6):
            record(iteration(number), ended(100 * number - 50, 100 * number))

    resumed = RunFolder.create(tmp_path / "resumed", env="E", algo="ppo", seed=0)
    with closing(RunRecord(resumed)) as record:
        for number in range(1, 5):  # went on past the checkpoint at 200 before it died
            reward = 20.0 + number if number <= 2 else -1.0
            record(iteration(number, ep_rew_mean=reward), ended(100 * number - 50, 100 * number))
    if torn:  # killed while it wrote
        for path in (resumed / "progress.csv", resumed / "episodes.csv", *resumed.path.glob(EVENTS + "*")):
            with path.open("ab") as file:
                file.write(b"5,5")
    with closing(RunRecord(resumed, resume_steps=200)) as record:
        for number in range(3, 6):
            record(iteration(number), ended(100 * number - 50, 100 * number))

    for name in ("progress.csv", "episodes.csv"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes(), name
    assert events(resumed) == events(straight)


def test_new_record_starts_empty_tables(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
    with closing(RunRecord(folder)) as record:
        pass
    assert rows(folder / "progress.csv") == []


@pytest.mark.parametrize(
    ("content", "message"), [("a,b\n", "columns are not those"), ("", "columns are not those"), (None, "line 2")]
)
def test_foreign_table_is_refused_by_name(folder: RunFolder, content: str | None, message: str) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
    path = folder / "progress.csv"
    path.write_text(path.read_text().splitlines()[0] + "\nx,y\n" if content is None else content)
    with pytest.raises(CheckpointError, match=f"progress.csv.*{message}"):
        RunRecord(folder, resume_steps=100)


def test_a_table_of_an_earlier_version_gets_the_columns_it_lacks(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        for number in range(1, 4):
            record(iteration(number, parallel={"bytes_per_step": 7.0, "dropped_steps": 2.0}))
    path = folder / "progress.csv"
    newest = rows(path)
    old = [name for name in newest[0] if name != "parallel/bytes_per_step"]
    path.write_text(
        "".join(",".join(cells) + "\n" for cells in [old, *([row[name] for name in old] for row in newest)])
    )
    with closing(RunRecord(folder, resume_steps=200)) as record:
        record(iteration(3, parallel={"bytes_per_step": 7.0, "dropped_steps": 2.0}))
    assert rows(path) == [*({**row, "parallel/bytes_per_step": ""} for row in newest[:2]), newest[2]]


def test_rows_wait_for_the_flush(folder: RunFolder) -> None:
    record = RunRecord(folder, flush_s=3600.0)
    record(iteration(1), ended(5))
    assert rows(folder / "progress.csv") == []
    record.flush()
    assert len(rows(folder / "progress.csv")) == len(rows(folder / "episodes.csv")) == 1
    record(iteration(2))
    record.close()
    record.close()
    assert len(rows(folder / "progress.csv")) == 2


def test_full_disk_costs_no_row_and_does_not_stop_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, full = os.write, True

    record = RunRecord(folder, flush_s=0.0)
    calls = 0

    def failing(fd: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if not full:
            return write(fd, data)
        if calls % 2:
            return write(fd, data[:10])  # the last bytes that fit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", failing)
    with caplog.at_level(logging.WARNING):
        record(iteration(1))
        record(iteration(2))
    assert rows(folder / "progress.csv") == []
    warnings = [r.getMessage() for r in caplog.records if "progress.csv" in r.getMessage()]
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    full = False
    record(iteration(3))
    record.close()
    assert [row["iteration"] for row in rows(folder / "progress.csv")] == ["1", "2", "3"]
    assert [step for step, _ in events(folder)["time/fps"]] == [100, 200, 300]


def test_reading_a_record_needs_no_torch() -> None:
    code = "import sys, paceline.measure.record, paceline.insight.runs.compare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_workers_are_recorded_as_their_average() -> None:
    workers = [WorkerActivity(0.1, 0.05, learn_s=0.2), WorkerActivity(0.3, 0.05)]
    found = iteration(1, workers=workers, parallel={}).scalars()
    shares = {name: found[f"parallel/worker_{name}_frac"] for name in ("env", "inference", "learn", "idle")}
    assert shares == pytest.approx({"env": 0.4, "inference": 0.1, "learn": 0.2, "idle": 0.3})
    assert not any("worker" in name for name in iteration(1, parallel={}).scalars())


def test_a_slot_that_took_longer_than_the_iteration_leaves_no_negative_share() -> None:
    one = iteration(1, workers=[WorkerActivity(0.5, 0.25)], parallel={})
    assert one.worker_s["idle"] == pytest.approx(-0.25), "so that the sum over iterations is right"
    assert one.scalars()["parallel/worker_idle_frac"] == 0.0


def test_a_table_of_an_earlier_version_gets_the_present_names_of_its_columns(folder: RunFolder) -> None:
    with closing(RunRecord(folder)) as record:
        record(iteration(1))
    path = folder / "progress.csv"
    path.write_text(path.read_text().replace("system/pss_mb", "system/rss_mb"))
    with closing(RunRecord(folder, resume_steps=100)) as record:
        record(iteration(2))
    assert "rss_mb" not in path.read_text()
    assert [row["system/pss_mb"] for row in rows(path)] == ["40", "40"]
