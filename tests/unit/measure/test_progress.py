from __future__ import annotations

import io
import logging
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from paceline.measure import progress as progress_module
from paceline.measure.panel import (
    bar,
    duration,
    first_lines,
    last_lines,
    number,
    panel,
    plain_line,
    sparkline,
    stack,
)
from paceline.measure.progress import Progress, restore_streams
from paceline.measure.record import EvaluationRow, Goal, Iteration, RunInfo, Summary, WorkerActivity
from paceline.measure.train_log import TrainLog
from paceline.measure.view import View, phase_shares

INFO = RunInfo(
    algo="ppo",
    env="CartPole-v1",
    seed=7,
    n_envs=32,
    group_size=4,
    num_workers=2,
    start_method="forkserver",
    folder="runs/[red]x",
)


def iteration(number: int, **changes: Any) -> Iteration:
    whole = Iteration(
        iteration=number,
        steps=1000 * number,
        episodes=10 * number,
        wall_s=0.5 * number,
        iteration_steps=1000,
        iteration_episodes=10,
        iteration_s=0.5,
        ep_rew_mean=12.5,
        ep_len_mean=12.0,
        phases={"collect": 0.3, "learn": 0.15},
        parallel={"workers_alive": 2, "worker_idle_frac": 0.25, "worker_restarts": 0},
        system={"cpu_percent": 190.0, "rss_mb": 1234.0},
    )
    return replace(whole, **changes)


def view(*iterations: Iteration, goal: Goal | None = None, **changes: Any) -> View:
    newest = iterations[-1] if iterations else None
    whole = View(
        info=INFO,
        goal=goal or Goal(steps=10_000),
        newest=newest,
        recent=iterations,
        wall_s=newest.wall_s if newest else 0.0,
        since_s=0.0,
    )
    return replace(whole, **changes)


def drawn(one: View, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(panel(one, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_first_line_names_envs_workers_start_method_and_threads() -> None:
    first, folder = first_lines(INFO)
    for part in ("ppo", "CartPole-v1", "32 envs", "8 groups of 4", "2 workers", "forkserver", "1 thread", "seed 7"):
        assert part in first
    assert "runs/[red]x" in folder
    sequential = first_lines(replace(INFO, num_workers=0, start_method=None, resumed_steps=5000))
    assert "sequential" in sequential[0]
    assert "worker" not in sequential[0]
    assert sequential[1] == "resumed at step 5,000"


def test_rates_are_of_the_recent_iterations() -> None:
    one = view(iteration(1, iteration_s=1.0), iteration(2))
    assert one.fps == pytest.approx(2000 / 1.5)
    assert one.episodes_per_s == pytest.approx(20 / 1.5)
    assert view().fps is None


def test_time_left_is_of_the_budget_that_ends_first() -> None:
    now = iteration(4)  # 4,000 steps and 40 episodes at 2,000 steps/s and 20 episodes/s, after 2 s
    assert view(now, goal=Goal(steps=10_000)).left_s == pytest.approx(3.0)
    assert view(now, goal=Goal(episodes=50)).left_s == pytest.approx(0.5)
    assert view(now, goal=Goal(seconds=60.0)).left_s == pytest.approx(58.0)
    assert view(now, goal=Goal(steps=10_000, seconds=60.0)).left_s == pytest.approx(3.0)
    assert view(now, goal=Goal(steps=10_000), since_s=1.0).left_s == pytest.approx(2.0)
    assert view(now, goal=Goal(steps=10_000), since_s=9.0).left_s == 0.0
    assert view(goal=Goal(steps=10_000)).left_s is None
    assert view(now, goal=Goal()).left_s is None


def test_fraction_is_of_the_budget_that_ends_first() -> None:
    now = iteration(4)
    assert view(now, goal=Goal(steps=10_000, episodes=50)).fraction == pytest.approx(0.8)
    assert view(now, goal=Goal(steps=1_000)).fraction == 1.0
    assert view(now, goal=Goal()).fraction == 0.0
    assert "40 / 50 episodes" in drawn(view(now, goal=Goal(steps=10_000, episodes=50)))


def test_plain_line_begins_with_the_episode_where_the_budget_is_episodes() -> None:
    now = iteration(4, last_return=123.4, last_length=1234)
    assert plain_line(view(now, goal=Goal(steps=10_000, episodes=50))).startswith(
        "[0:02] episode 40/50 | reward 123.4 | length 1,234 | mean(100) 12.5 | 10 episodes in this rollout | 32 envs | "
        "2,000 steps/s | "
    )
    by_steps = plain_line(view(now, goal=Goal(steps=5_000, episodes=1_000_000)))
    assert by_steps.startswith("[0:02] 4,000 / 5,000 steps | episode 40/1,000,000 | reward")
    none_yet = plain_line(view(iteration(1, ep_rew_mean=None, ep_len_mean=None, iteration_episodes=1)))
    assert "reward" not in none_yet
    assert "mean(100)" not in none_yet
    assert "| 1 episode in this rollout |" in none_yet


def test_lag_is_shown_where_there_is_one() -> None:
    parallel = {"policy_lag_mean": 0.52, "policy_lag_max": 3.0}
    assert "lag 0.52 (max 3)" in drawn(view(iteration(1, parallel=parallel)))
    assert "lag 0.52 (max 3)" in plain_line(view(iteration(1, parallel=parallel)))
    assert "lag" not in drawn(view(iteration(1, parallel={"policy_lag_mean": 0.0, "policy_lag_max": 0.0})))


def test_panel_has_a_line_for_each_worker() -> None:
    workers = [WorkerActivity(0.3, 0.1, 97.0, 45.0), WorkerActivity(0.1, 0.05)]
    text = drawn(view(iteration(1, workers=workers)))
    first, second = text.splitlines()[-2:]
    assert first.split()[0] == "0"
    for part in ("env  60%", "inference  20%", "idle  20%", "97 % cpu", "45 MB"):
        assert part in first
    assert "idle  70%" in second
    assert "cpu" not in second


def test_shares_add_up_to_one_with_the_rest_named() -> None:
    shares = phase_shares([{"collect": 1.0, "learn": 0.5}, {"collect": 1.0, "save": 0.5}], 4.0)
    assert shares == {"collect": 0.5, "learn": 0.125, "save": 0.125, "other": 0.25}
    assert sum(phase_shares([{"collect": 3.0}], 2.0).values()) == pytest.approx(1.0)
    assert phase_shares([], 0.0) == {}


def test_plain_line_says_everything_in_one_line() -> None:
    line = plain_line(view(iteration(4), last_eval=EvaluationRow(480.0, 1.0)))
    for part in (
        "0:02",
        "4,000 / 10,000 steps",
        "2,000 steps/s",
        "mean(100) 12.5",
        "eval 480.0",
        "collect 60%",
        "0:03 left",
    ):
        assert part in line
    assert "\n" not in line


def test_panel_shows_what_a_person_asks_for() -> None:
    text = drawn(
        view(
            iteration(4),
            returns=[1.0, 5.0, 9.0],
            last_eval=EvaluationRow(480.0, 1.0),
            best_eval=EvaluationRow(490.0, 1.0),
        )
    )
    for part in ("40%", "0:03 left", "2,000 steps/s", "20 episodes/s", "12.5", "▁▅█", "480.0 last", "490.0 best",
                 "collect 60%", "learn 30%", "other 10%", "2 of 2", "idle 25%", "1,234 MB"):  # fmt: skip
        assert part in text, part


def test_panel_before_the_first_iteration_and_without_episodes() -> None:
    assert "starting" in drawn(view())
    assert "no episode has ended yet" in drawn(view(iteration(1, ep_rew_mean=None, ep_len_mean=None)))


def test_panel_tells_trouble() -> None:
    now = iteration(4, parallel={"workers_alive": 1, "worker_restarts": 3})
    text = drawn(view(now, since_s=75.0))
    assert "1 of 2" in text
    assert "3 restarts" in text
    assert "no update for 1:15" in text


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_panel_keeps_to_its_width_and_height(width: int) -> None:
    text = drawn(view(iteration(4), returns=[float(i) for i in range(500)]), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(text.splitlines()) == 5


def test_bars_are_exactly_as_wide_as_asked() -> None:
    for fraction in (0.0, 0.013, 0.5, 0.999, 1.0):
        assert len(bar(fraction, 20).plain) == 20
    assert len(stack({"collect": 1 / 3, "learn": 1 / 3, "wait": 1 / 3}, 10).plain) == 10


def test_sparkline() -> None:
    assert sparkline([0.0, 7.0], 10) == "▁█"
    assert sparkline([float(i) for i in range(8)], 8) == "▁▂▃▄▅▆▇█"
    assert len(sparkline([float(i) for i in range(1000)], 24)) == 24
    assert sparkline([3.0, 3.0, 3.0], 10) == "▁▁▁"
    assert sparkline([1.0, float("nan"), 2.0], 10) == "▁█"
    assert sparkline([], 10) == sparkline([1.0], 10) == ""


def test_numbers_as_people_read_them() -> None:
    assert [duration(s) for s in (0.4, 65, 3725)] == ["0:00", "1:05", "1:02:05"]
    assert [number(v) for v in (0.0, 0.01234, -3.14159, 1234.56)] == ["0.0", "0.0123", "-3.14", "1,234.6"]


SUMMARY = Summary(
    algo="ppo", env="CartPole-v1", seed=7, n_envs=32, num_workers=2, group_size=4, steps=4000, episodes=40,
    iterations=4, wall_s=2.0, fps=2000.0, final_eval=EvaluationRow(480.0, 1.0), best_eval=EvaluationRow(490.0, 1.0),
    startup_s=1.5,
    phases={"collect": 1.2, "learn": 0.6}, peak_memory_mb=None, lag={}, restarts=1, weights_sha256="", finished=True,
    stop_reason="total_timesteps",
)  # fmt: skip


def test_last_lines() -> None:
    text = "\n".join(last_lines(SUMMARY, INFO))
    for part in ("finished (total_timesteps)", "4,000 steps", "2,000 steps/s", "evaluation 480.0", "best 490.0",
                 "collect 60%", "workers replaced: 1", "runs/[red]x"):  # fmt: skip
        assert part in text, part
    assert last_lines(replace(SUMMARY, finished=False), INFO)[0].startswith("stopped")


def captured(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=100, highlight=False), file


def test_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.01)
    console, file = captured(terminal=False)
    with Progress(INFO, Goal(steps=10_000), console=console) as progress:
        assert "32 envs" in file.getvalue()
        for i in range(1, 6):
            progress.update(iteration(i))
            time.sleep(0.03)
        progress.note("worker 1 was [bold]replaced")
        progress.close(SUMMARY)
    lines = file.getvalue().splitlines()
    assert lines[1] == "run folder: runs/[red]x"  # not taken for markup
    steps = [line for line in lines if line.startswith("[0:")]
    assert len(steps) == 2  # the first at once, the next five seconds later or at the end
    assert "5,000 / 10,000 steps" in steps[1]
    assert "note: worker 1 was [bold]replaced" in lines
    assert any(line.startswith("finished") for line in lines)
    assert "\x1b" not in file.getvalue()


def test_live_panel_is_drawn_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.01)
    console, file = captured(terminal=True)
    with Progress(INFO, Goal(steps=10_000), console=console, live=True) as progress:
        progress.update(iteration(1))
        time.sleep(0.1)
        progress.note("a note")
        progress.close(SUMMARY)
    text = file.getvalue()
    assert "steps/s" in text
    assert "note: a note" in text
    assert text.index("note: a note") < text.index("finished (")
    assert not isinstance(sys.stdout, FileProxy)
    assert text.endswith("runs/[red]x\n")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is given back


def test_the_log_gets_lines_also_when_quiet(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    with TrainLog(file) as log, Progress(INFO, Goal(episodes=100), quiet=True, log=log) as progress:
        for i in range(1, 4):
            progress.update(iteration(i))
        progress.note("worker 1 was replaced")
        progress.close(SUMMARY)
        progress.close()
    lines = [line.split(maxsplit=3)[3] for line in file.read_text().splitlines()]
    assert lines[0].startswith("ppo on CartPole-v1: 32 envs")
    assert [line for line in lines if "episode 10/100" in line]  # the first at once
    assert not [line for line in lines if "episode 30/100" in line]  # the next five seconds later
    assert "worker 1 was replaced" in lines
    assert len([line for line in lines if line.startswith("finished (total_timesteps)")]) == 1


def test_what_loggers_warn_of_is_shown_as_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.01)
    console, file = captured(terminal=True)
    logger = logging.getLogger("paceline.measure.append")
    with Progress(INFO, Goal(), console=console, live=True) as progress:
        progress.update(iteration(1))
        logger.warning("%s: cannot be written", "progress.csv")
        logger.info("not this")
        progress.close(SUMMARY)
    assert "note: progress.csv: cannot be written" in file.getvalue()
    assert "not this" not in file.getvalue()
    assert logging.getLogger("paceline").handlers == []


def test_quiet_says_nothing_and_starts_nothing() -> None:
    console, file = captured(terminal=True)
    before = threading.active_count()
    with Progress(INFO, Goal(), console=console, quiet=True) as progress:
        progress.update(iteration(1))
        progress.note("x")
        assert threading.active_count() == before
        progress.close(SUMMARY)
    assert file.getvalue() == ""


def test_close_twice_and_no_thread_left() -> None:
    console, _ = captured(terminal=False)
    before = threading.active_count()
    progress = Progress(INFO, Goal(), console=console)
    progress.start()
    progress.start()
    assert threading.active_count() == before + 1
    progress.close()
    progress.close()
    assert threading.active_count() == before


class Stuck(io.StringIO):
    """A terminal on which somebody pressed Ctrl-S."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.stuck = threading.Event()

    def write(self, text: str) -> int:
        self.stuck.set()
        self.go.wait(30)
        return super().write(text)


def test_a_stuck_terminal_does_not_hold_up_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PATIENCE_S", 0.05)
    file = Stuck()
    progress = Progress(INFO, Goal(), console=Console(file=file, width=100))
    began = time.perf_counter()
    progress.start()
    assert file.stuck.wait(5)
    for i in range(1, 1000):
        progress.update(iteration(i))
    progress.note("x")
    thread = progress._thread
    progress.close(SUMMARY)
    assert time.perf_counter() - began < 10.0, "the terminal is stuck for 30"
    file.go.set()
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive()


def test_a_closed_terminal_ends_the_display_only() -> None:
    file = io.StringIO()
    progress = Progress(INFO, Goal(), console=Console(file=file, width=100))
    progress.start()
    file.close()
    progress.update(iteration(1))
    progress.close(SUMMARY)


def test_window_forgets_what_is_long_ago() -> None:
    progress = Progress(INFO, Goal(), quiet=True)
    for i in range(1, 101):
        progress.update(iteration(i, evaluation=EvaluationRow(float(50 - abs(50 - i)), 1.0)))
    seen = progress.view()
    assert [it.iteration for it in seen.recent] == list(range(80, 101))
    assert seen.best_eval == EvaluationRow(50.0, 1.0)
    assert seen.last_eval == EvaluationRow(0.0, 1.0)


def test_forked_child_gets_the_streams_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stdout", FileProxy(Console(file=io.StringIO()), plain))
    restore_streams()
    assert sys.stdout is plain
