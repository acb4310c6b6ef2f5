from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paceline.errors import ConfigError
from paceline.measure.compare import Comparison, compare, efficiency, speed_up
from paceline.measure.folder import RunFolder
from paceline.measure.record import Evaluation, Iteration, Record, Summary
from paceline.measure.results import RunResult, read_progress, read_run

SUMMARY = Summary(
    algo="ppo",
    env="CartPole-v1",
    seed=7,
    n_envs=32,
    num_workers=0,
    group_size=4,
    steps=100_000,
    episodes=900,
    iterations=25,
    wall_s=10.0,
    startup_s=1.5,
    fps=10_000.0,
    final_eval=Evaluation(480.0, 480.0),
    best_eval=Evaluation(500.0, 500.0),
    phases={"collect": 6.0, "learn": 3.0, "wait": 0.5},
    peak_memory_mb=300.0,
    lag={},
    restarts=0,
    weights_sha256="00",
    finished=True,
    stop_reason="total_timesteps",
)


def summarised(path: Path, **changes: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    RunFolder(path).write_json("summary.json", replace(SUMMARY, **changes))
    return path


def recorded(path: Path, iterations: int = 3) -> Path:
    """A run that has no summary."""
    folder = RunFolder.create(path, env="E", algo="ppo", seed=0)
    with Record(folder) as record:
        for i in range(1, iterations + 1):
            record(
                Iteration(
                    iteration=i,
                    steps=1000 * i,
                    episodes=10 * i,
                    wall_s=0.5 * i,
                    iteration_steps=1000,
                    iteration_episodes=10,
                    iteration_s=0.5,
                    ep_rew_mean=20.0 * i,
                    ep_len_mean=20.0,
                    phases={"collect": 0.25, "learn": 0.125},
                    evaluation=Evaluation(100.0 if i == 2 else 90.0, 1.0) if i > 1 else None,
                    parallel={"worker_restarts": 1},
                    system={"cpu_percent": 100.0, "rss_mb": 100.0 * i},
                )
            )
    return path


def cells(result: Comparison, label: str) -> tuple[str, ...]:
    return next(row.cells for row in result.rows if row.label == label)


def test_summary_is_read(tmp_path: Path) -> None:
    run = read_run(summarised(tmp_path / "a"))
    assert run.finished
    assert (run.algo, run.env, run.seed, run.n_envs, run.num_workers) == ("ppo", "CartPole-v1", 7, 32, 0)
    assert (run.steps, run.episodes, run.wall_s, run.fps) == (100_000, 900, 10.0, 10_000.0)
    assert (run.final_eval, run.best_eval, run.peak_memory_mb) == (480.0, 500.0, 300.0)
    assert run.phases == {"collect": 6.0, "learn": 3.0, "wait": 0.5}
    assert run.mean_return is None


def test_unfinished_run_is_read_from_its_progress(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    (path / "config.yaml").write_text(
        "env: {env: CartPole-v1, n_envs: 32}\nparallel: {num_workers: auto}\nrun: {algo: ppo, seed: 3}\n"
    )
    (path / "layout.json").write_text('{"num_workers": 2}')
    run = read_run(path)
    assert not run.finished
    assert (run.algo, run.env, run.seed, run.n_envs, run.num_workers) == ("ppo", "CartPole-v1", 3, 32, 2)
    assert (run.steps, run.episodes, run.wall_s, run.fps) == (3000, 30, 1.5, 2000.0)
    assert (run.final_eval, run.best_eval, run.mean_return) == (90.0, 100.0, 60.0)
    assert run.peak_memory_mb == 300.0
    assert run.phases["collect"] == pytest.approx(0.75)
    assert run.restarts == 1


@pytest.mark.parametrize("config", [None, "", "[1, 2]", "env: 3\nrun: [", "!!python/object:os.system {}"])
def test_unfinished_run_without_a_usable_config(tmp_path: Path, config: str | None) -> None:
    path = recorded(tmp_path / "a")
    if config is not None:
        (path / "config.yaml").write_text(config)
    run = read_run(path)
    assert run.env is None
    assert run.num_workers is None
    assert run.steps == 3000


def test_half_a_line_at_the_end_is_not_read(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    with (path / "progress.csv").open("a") as file:
        file.write("4,4000,4")
    assert read_run(path).steps == 3000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ('{"steps": 1', "not JSON"),
        ("[]", "not a mapping"),
        ("{}", "steps is missing"),
        ('{"steps": "many"}', "steps is 'many'"),
        ('{"steps": true, "episodes": 1, "wall_s": [], "fps": 1}', "wall_s is"),
        ('{"steps": 1, "episodes": 1, "wall_s": 1, "fps": 1, "final_eval": 3}', "final_eval is 3"),
        ('{"steps": 1, "episodes": 1, "wall_s": 1, "fps": 1, "phases": {"a": "b"}}', "a is 'b'"),
        (b"\xff\xfe\x00", "cannot be read .not text"),
    ],
)
def test_damaged_summary_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "summary.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=rf"summary\.json: .*{message}"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: "", r"progress\.csv: damaged"),
        (lambda text: "a,b\n1,2\n", r"progress\.csv: damaged"),
        (lambda text: text.splitlines()[0] + "\n", r"progress\.csv: empty"),
        (lambda text: text + "1,2\n", r"progress\.csv, line 5: damaged"),
        (lambda text: text.replace("2000", "x", 1), r"progress\.csv, line \d: damaged"),
    ],
)
def test_damaged_progress_is_named(tmp_path: Path, edit: Any, message: str) -> None:
    path = recorded(tmp_path / "a") / "progress.csv"
    path.write_text(edit(path.read_text()))
    with pytest.raises(ConfigError, match=message):
        read_run(tmp_path / "a")


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"neither summary\.json nor progress\.csv"):
        read_run(tmp_path)


def test_progress_rows_are_numbers(tmp_path: Path) -> None:
    first, second, _ = read_progress(recorded(tmp_path / "a"))
    assert first["time/fps"] == 2000.0
    assert "eval/mean_reward" not in first
    assert second["eval/mean_reward"] == 100.0


@pytest.fixture
def pair(tmp_path: Path) -> list[RunResult]:
    return [
        read_run(summarised(tmp_path / "seq")),
        read_run(
            summarised(
                tmp_path / "par", num_workers=4, fps=30_000.0, final_eval=Evaluation(500.0, 500.0), peak_memory_mb=600.0
            )
        ),
    ]


def test_speed_and_efficiency_are_against_the_first(pair: list[RunResult]) -> None:
    seq, par = pair
    assert speed_up(par, seq) == pytest.approx(3.0)
    assert efficiency(par, seq) == pytest.approx(0.75)
    assert efficiency(seq, par) == pytest.approx(4 / 3)
    result = compare(pair)
    assert result.names == ("seq", "par")
    assert cells(result, "steps/s") == ("10,000", "30,000")
    assert cells(result, "speed-up") == ("1.00x", "3.00x")
    assert cells(result, "efficiency per worker") == ("100%", "75%")
    assert cells(result, "workers") == ("0 (sequential)", "4")
    assert cells(result, "final evaluation") == ("480.0", "500.0")
    assert cells(result, "peak memory") == ("300 MB", "600 MB")
    assert cells(result, "time in collect") == ("60%", "60%")
    assert cells(result, "time in other") == ("5%", "5%")
    assert result.verdict == (
        "par (4 workers) ran 3.00 times as fast as seq: 30,000 against 10,000 steps/s; evaluation 500.0 against 480.0."
    )
    assert result.remarks == ()


def test_a_slower_run_is_told_so_and_where_its_time_went(pair: list[RunResult]) -> None:
    seq, par = pair
    verdict = compare([seq, replace(par, fps=5_000.0, phases={"wait": 7.0, "learn": 3.0})]).verdict
    assert "ran slower than seq, at 0.50 times its speed" in verdict
    assert "70% of its time in wait" in verdict


def test_a_small_difference_is_a_tie(pair: list[RunResult]) -> None:
    seq, par = pair
    assert "about as fast as seq" in compare([seq, replace(par, fps=10_300.0)]).verdict


def test_of_many_runs_the_fastest_is_named(pair: list[RunResult]) -> None:
    seq, par = pair
    slow = replace(par, path=Path("slow"), fps=12_000.0)
    verdict = compare([seq, slow, par]).verdict
    assert verdict.startswith("The fastest other run, par (4 workers), ran 3.00 times as fast as seq")


def test_unlike_and_unfinished_runs_are_remarked(pair: list[RunResult]) -> None:
    seq, par = pair
    result = compare([seq, replace(par, n_envs=8, finished=False, stop_reason="SIGTERM")])
    assert result.remarks == (
        "the runs differ in n_envs (32, 8): not like for like.",
        "par is unfinished (SIGTERM): its numbers are of what it did.",
    )
    assert cells(result, "state") == ("finished", "unfinished")


def test_runs_of_one_name_are_told_apart_by_path(tmp_path: Path) -> None:
    runs = [read_run(summarised(tmp_path / parent / "run")) for parent in ("a", "b")]
    assert compare(runs).names == (str(tmp_path / "a" / "run"), str(tmp_path / "b" / "run"))


def test_unknown_numbers_are_left_open(pair: list[RunResult]) -> None:
    seq, par = pair
    blank: dict[str, Any] = {"final_eval": None, "num_workers": None, "phases": {}}
    result = compare([replace(seq, **blank), replace(par, **blank)])
    assert "evaluation" not in result.verdict
    labels = [row.label for row in result.rows]
    assert "efficiency per worker" not in labels
    assert "final evaluation" not in labels
    assert not any(label.startswith("time in") for label in labels)
    half = compare([seq, replace(par, **blank)])
    assert cells(half, "final evaluation") == ("480.0", "-")
    assert cells(half, "time in learn") == ("30%", "-")


def test_base_without_steps_is_no_division_by_zero(pair: list[RunResult]) -> None:
    seq, par = pair
    assert "nothing to compare with" in compare([replace(seq, steps=0, fps=0.0), par]).verdict


def test_one_run_is_not_enough(pair: list[RunResult]) -> None:
    with pytest.raises(ConfigError, match="at least two runs, not 1"):
        compare(pair[:1])


def test_text_and_table_say_the_same(pair: list[RunResult]) -> None:
    result = compare(pair)
    text = result.as_text()
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(result.as_table())
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    for row in result.rows:
        line = next(line for line in text.splitlines() if line.startswith(row.label))
        assert line.split()[-1] == row.cells[-1].split()[-1]
        assert all(cell in drawn for cell in row.cells)
    table = text.split("\n\n")[0].splitlines()
    assert len({len(line) for line in table}) == 1  # columns are aligned
    assert result.verdict in text


def test_summary_has_the_keys_that_readers_rely_on(tmp_path: Path) -> None:
    content = json.loads((summarised(tmp_path / "a") / "summary.json").read_text())
    assert set(content) == {
        "algo", "env", "seed", "n_envs", "num_workers", "group_size", "steps", "episodes", "iterations", "wall_s",
        "fps", "final_eval", "best_eval", "phases", "peak_memory_mb", "lag", "restarts", "weights_sha256", "finished",
        "stop_reason",
    }  # fmt: skip
    assert content["final_eval"] == {"mean_reward": 480.0, "mean_ep_length": 480.0}
