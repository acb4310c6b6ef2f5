from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.unit.insight.runs.run_folders import complete, read_all, recorded, sides, summarised

from paceline.errors import ConfigError
from paceline.insight.runs.compare import Comparison, common_score, compare, efficiency, interval_note
from paceline.insight.runs.results import RunResult, read_run
from paceline.insight.runs.verdict import subject
from paceline.measure.panel import rate
from paceline.measure.record import EvaluationRow


def cells(result: Comparison, label: str) -> tuple[str, ...]:
    return next(row.cells for row in result.rows if row.label == label)


@pytest.fixture
def pair(tmp_path: Path) -> list[RunResult]:
    par = {"num_workers": 4, "fps": 30_000.0, "final_eval": EvaluationRow(500.0, 500.0), "peak_memory_mb": 600.0}
    return read_all(summarised(tmp_path / "seq"), summarised(tmp_path / "par", **par))


def test_speed_and_efficiency_are_against_the_first(pair: list[RunResult]) -> None:
    seq, par = sides(*pair)
    assert efficiency(par, seq) == pytest.approx(0.75)
    assert efficiency(seq, par) == pytest.approx(4 / 3)
    result = compare([seq, par])
    assert result.names == ("seq", "par")
    assert cells(result, "steps/s") == ("10,000", "30,000")
    assert cells(result, "speed-up") == ("1.00x", "3.00x")
    assert cells(result, "efficiency per worker") == ("100%", "75%")
    assert cells(result, "workers") == ("0 (sequential)", "4")
    assert cells(result, "start-up") == ("1.5 s", "1.5 s")
    assert cells(result, "final evaluation") == ("480.0", "500.0")
    assert cells(result, "peak memory (PSS)") == ("300 MB", "600 MB")
    assert cells(result, "time in env") == ("40%", "40%")
    assert cells(result, "time in record") == ("1%", "1%")
    assert cells(result, "time in other") == ("4%", "4%")  # what no phase claims
    assert interval_note(result) is None


def test_the_table_has_every_number(tmp_path: Path) -> None:
    runs = read_all(complete(tmp_path / "a", returns=float), complete(tmp_path / "b", returns=float))
    labels = [row.label for row in compare(sides(*runs), score=20.0).rows]
    for label in (
        "state", "steps", "episodes", "time", "steps/s", "speed-up", "efficiency per worker", "final evaluation",
        "best evaluation", "time to 20", "steps to 20", "peak memory (PSS)", "CPU use (100% = a core)",
        "worker restarts", "time in env", "time in inference", "time in wait", "time in learn",
    ):  # fmt: skip
        assert label in labels


def test_hashes_of_the_final_weights_are_shown_for_single_runs(pair: list[RunResult]) -> None:
    seq, par = (replace(run, weights_sha256=f"{digit}" * 64) for run, digit in zip(pair, "ab", strict=True))
    assert cells(compare(sides(seq, par)), "weights (sha256)") == ("a" * 12, "b" * 12)
    assert "weights (sha256)" not in [row.label for row in compare(sides(*pair)).rows], "not recorded"


def test_time_to_a_score(tmp_path: Path) -> None:
    """The mean of the last ten iterations' returns 1, 2, 3, ... is i - 4.5."""
    runs = read_all(
        complete(tmp_path / "a", returns=float, iterations=30), complete(tmp_path / "b", returns=float, iterations=20)
    )
    result = compare(sides(*runs), score=20.5)
    assert cells(result, "time to 20.5") == ("12.5 s", "not reached")
    assert cells(result, "steps to 20.5") == ("25,000", "not reached")
    assert compare(sides(*runs)).score == 15.0  # 15.5 is the highest that both have reached


@pytest.mark.parametrize(
    ("best", "score"), [(15.5, 15.0), (499.0, 490.0), (-153.2, -160.0), (-200.0, -200.0), (0.0, 0.0), (0.77, 0.77)]
)
def test_common_score_is_round_and_reached(tmp_path: Path, best: float, score: float) -> None:
    run = read_run(complete(tmp_path / "a", returns=lambda i: best, iterations=12))
    (side, _) = sides(run, replace(run, path=tmp_path / "a"))
    assert common_score([side]) == pytest.approx(score)
    assert side.scores[0].reached(score) is not None


def test_groups_have_means_with_intervals(tmp_path: Path) -> None:
    a = read_all(*(summarised(tmp_path / f"a{i}", fps=fps, seed=i) for i, fps in enumerate((1000.0, 1200.0, 1400.0))))
    b = read_all(*(summarised(tmp_path / f"b{i}", fps=2400.0, seed=i) for i in range(3)))
    result = compare(sides(a, b))
    assert cells(result, "steps/s") == ("1,200 ± 497", "2,400")  # 4.303 * 200 / sqrt(3)
    assert cells(result, "speed-up")[1].startswith("2.00x (1.")
    assert cells(result, "seeds") == ("0, 1, 2", "0, 1, 2")
    assert "95% t-interval" in str(interval_note(result))


def test_seeds_of_one_config_have_means_intervals_and_ranges_but_no_ranking(tmp_path: Path) -> None:
    fps = (1000.0, 1200.0, 1400.0)
    result = compare(
        sides(read_all(*(complete(tmp_path / f"a{i}", returns=float, fps=fps[i], seed=i) for i in range(3))))
    )
    assert result.one_config
    assert cells(result, "runs") == ("3",)
    assert cells(result, "seeds") == ("0, 1, 2",)
    assert cells(result, "steps/s") == ("1,200 ± 497 (1,000 to 1,400)",)
    assert cells(result, "time to 25") == ("15.0 s",)
    labels = [row.label for row in result.rows]
    assert "speed-up" not in labels
    assert "efficiency per worker" not in labels
    assert "the smallest and the largest value" in str(interval_note(result))


def test_a_single_run_is_nothing_to_compare(pair: list[RunResult]) -> None:
    with pytest.raises(ConfigError, match="at least two runs, not 1"):
        compare(sides(pair[0]))


def test_groups_count_those_that_reach_a_score(tmp_path: Path) -> None:
    a = read_all(
        complete(tmp_path / "a0", returns=float, iterations=30, seed=0),
        complete(tmp_path / "a1", returns=lambda i: 0.0, iterations=30, seed=1),
    )
    result = compare(sides(a, read_run(complete(tmp_path / "b", returns=float))), score=20.5)
    assert cells(result, "time to 20.5") == ("12.5 s (1 of 2 runs)", "12.5 s")


def test_a_killed_run_compares(tmp_path: Path) -> None:
    runs = read_all(complete(tmp_path / "a", returns=float), recorded(tmp_path / "b", iterations=15))
    result = compare(sides(*runs))
    assert cells(result, "state") == ("finished", "unfinished")
    assert cells(result, "steps") == ("30,000", "15,000")
    assert any("b is unfinished (no summary.json)" in remark for remark in result.remarks)
    assert cells(result, "time in env")[1] == "-"  # not told from inference, so not 0%
    assert cells(result, "time in collect") == ("40%", "50%")


def test_another_task_has_no_speed_up(pair: list[RunResult]) -> None:
    seq, par = pair
    result = compare(sides(seq, replace(par, env="Acrobot-v1")))
    assert cells(result, "speed-up") == ("1.00x", "-")
    assert subject(result.sides) is None
    assert any("env (CartPole-v1 against Acrobot-v1): another task" in remark for remark in result.remarks)


def test_unknown_numbers_are_shown_as_missing(pair: list[RunResult]) -> None:
    seq, par = pair
    blank: dict[str, Any] = {"final_eval": None, "num_workers": None, "phases": {}}
    result = compare(sides(replace(seq, **blank), replace(par, **blank)))
    labels = [row.label for row in result.rows]
    assert "efficiency per worker" not in labels
    assert "final evaluation" not in labels
    assert not any(label.startswith("time in") for label in labels)
    half = compare(sides(seq, replace(par, **blank)))
    assert cells(half, "final evaluation") == ("480.0", "-")
    assert cells(half, "time in learn") == ("30%", "-")


def test_one_run_is_not_enough(pair: list[RunResult]) -> None:
    with pytest.raises(ConfigError, match="at least two runs, not 1"):
        compare(sides(pair[0]))


def test_text_and_table_say_the_same(pair: list[RunResult]) -> None:
    result = compare(sides(pair[0], replace(pair[1], path=Path("[red]x"))))
    text = result.as_text()
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(result.as_table())
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    assert "[red]x" in drawn  # a name is no markup
    for row in result.rows:
        line = next(line for line in text.splitlines() if line.startswith(row.label))
        assert line.split()[-1] == row.cells[-1].split()[-1]
        assert all(cell in drawn for cell in row.cells)
    assert len({len(line) for line in text.splitlines()}) == 1  # columns are aligned


def test_workers_of_any_mode_have_rows_and_asynchronous_drivers_step_no_envs(pair: list[RunResult]) -> None:
    seq, par = pair
    free = replace(par, phases={"wait": 9.2, "learn": 0.8}, worker_s={"env": 6.0, "inference": 2.0, "idle": 2.0})
    result = compare(sides(seq, free))
    assert cells(result, "time in env") == ("40%", "-")
    assert cells(result, "time in wait") == ("5%", "92%")
    assert cells(result, "workers: env") == ("-", "60%")
    assert cells(result, "workers: inference") == ("-", "20%")
    assert cells(result, "workers: idle") == ("-", "20%")
    assert not any(row.label.startswith("workers:") for row in compare(sides(*pair)).rows)


def test_the_statistics_of_each_domain_have_rows(pair: list[RunResult]) -> None:
    dqn, games = (
        replace(run, progress={**{tag: np.array(own) for tag, own in columns.items()}})
        for run, columns in zip(
            pair,
            (
                {"train/epsilon": [1.0, 0.05], "train/buffer_size": [20.0, 20_000.0], "train/loss": [0.25, np.nan]},
                {"train/loss": [2.0, 1.5], "train/elo": [1000.0, 1081.6], "train/win_rate_random": [np.nan, 0.614]},
            ),
            strict=True,
        )
    )
    result = compare(sides(dqn, games))
    assert cells(result, "epsilon") == ("0.05", "-")
    assert cells(result, "replay buffer") == ("20,000", "-")
    assert cells(result, "loss") == ("0.25", "1.5"), "the newest that was recorded"
    assert cells(result, "Elo") == ("-", "1,082")
    assert cells(result, "win rate against random") == ("-", "61%")
    expected = tuple(rate(run.episodes * run.fps / run.steps) for run in (dqn, games))
    assert cells(result, "episodes/s") == expected
    other = replace(dqn, path=games.path, seed=1, progress={**dqn.progress, "train/epsilon": np.array([1.0, 0.07])})
    assert cells(compare(sides([dqn, other])), "epsilon")[0].startswith("0.06 ± ")
