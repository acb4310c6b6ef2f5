from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.insight.runs.listing import find_runs, listed
from paceline.measure.train_log import TrainLog

SUMMARY: dict[str, Any] = {
    "algo": "ppo", "env": "CartPole-v1", "num_workers": 2, "steps": 4096, "fps": 1000.5, "finished": True,
    "stop_reason": "duration", "final_eval": {"mean_reward": 480.0, "mean_ep_length": 480.0},
}  # fmt: skip
HEADER = "iteration,steps,episodes,rollout/ep_rew_mean,time/time_elapsed\n"


def run(path: Path, *, summary: dict[str, Any] | str | None = None, progress: str | None = None) -> Path:
    path.mkdir(parents=True)
    (path / "command.txt").write_text("paceline train\n")
    (path / "config.yaml").write_text("env: {env: Pendulum-v1}\nrun: {algo: ppo}\n")
    (path / "layout.json").write_text('{"num_workers": 3}')
    if summary is not None:
        (path / "summary.json").write_text(summary if isinstance(summary, str) else json.dumps(summary))
    if progress is not None:
        (path / "progress.csv").write_text(HEADER + progress)
    return path


def test_a_finished_run(tmp_path: Path) -> None:
    one = listed(run(tmp_path / "a", summary=SUMMARY, progress="1,4096,9,17.5,4.0\n"))
    assert (one.state, one.env, one.num_workers, one.steps, one.fps) == ("finished", "CartPole-v1", 2, 4096, 1000.5)
    assert (one.score, one.evaluated) == (480.0, True)
    without = listed(run(tmp_path / "b", summary={**SUMMARY, "final_eval": None}, progress="1,4096,9,17.5,4.0\n"))
    assert (without.score, without.evaluated) == (17.5, False)


def test_a_run_that_was_stopped_says_by_what(tmp_path: Path) -> None:
    one = listed(run(tmp_path / "a", summary={**SUMMARY, "finished": False, "stop_reason": "SIGINT"}))
    assert (one.state, one.remark) == ("unfinished", "SIGINT")


def test_a_killed_run_is_known_by_its_last_whole_row(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * 100},{i},{i / 2},{i * 0.5}\n" for i in range(1, 5000))
    one = listed(run(tmp_path / "a", progress=rows + "5000,5000"))
    assert (one.state, one.steps, one.score, one.evaluated) == ("unfinished", 499_900, 2499.5, False)
    assert one.fps == pytest.approx(200.0)
    assert (one.env, one.algo, one.num_workers) == ("Pendulum-v1", "ppo", 3)


@pytest.mark.parametrize("progress", [None, "", "1,2", "1,x,3,4,5\n"])
def test_a_run_without_a_row_in_progress_csv_is_listed(tmp_path: Path, progress: str | None) -> None:
    one = listed(run(tmp_path / "a", progress=progress))
    assert (one.state, one.steps, one.score, one.fps) == ("unfinished", None, None, None)


def test_a_run_is_running_while_its_log_is_written(tmp_path: Path) -> None:
    path = run(tmp_path / "a", summary=SUMMARY, progress="1,8192,9,17.5,4.0\n")  # resumed: the summary is older
    with closing(TrainLog(path / "train.log")):
        one = listed(path)
        assert (one.state, one.steps, one.score) == ("running", 8192, 17.5)
    assert listed(path).state == "finished"


@pytest.mark.parametrize("summary", ["{", "[]", "{}", json.dumps({**SUMMARY, "steps": "many"})])
def test_damage_is_named_and_does_not_stop_the_list(tmp_path: Path, summary: str) -> None:
    one = listed(run(tmp_path / "a", summary=summary))
    assert one.state == "damaged"
    assert one.remark.startswith("summary.json: ")


def test_age_is_of_the_newest_file(tmp_path: Path) -> None:
    path = run(tmp_path / "a", summary=SUMMARY)
    for file in path.iterdir():
        os.utime(file, (0, 0))
    assert listed(path).age_s > 1e9
    (path / "progress.csv").write_text(HEADER)
    assert listed(path).age_s < 60


def test_runs_are_found_at_any_depth_but_not_within_each_other(tmp_path: Path) -> None:
    run(tmp_path / "runs" / "b")
    run(tmp_path / "runs" / "sweep" / "lr" / "a")
    run(tmp_path / "runs" / "b" / "checkpoints" / "inner")
    run(tmp_path / "runs" / ".hidden")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    found = [str(path.relative_to(tmp_path)) for path in find_runs(tmp_path / "runs")]
    assert found == ["runs/b", "runs/sweep/lr/a"]
    assert find_runs(tmp_path / "runs" / "b") == [tmp_path / "runs" / "b"]
    assert find_runs(tmp_path / "nowhere") == []
