from __future__ import annotations

import io
import logging
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy
from tests.unit.measure.iterations import INFO, SUMMARY, iteration

from paceline.measure import progress as progress_module
from paceline.measure.progress import Progress, restore_streams
from paceline.measure.record import EvaluationRow, Goal
from paceline.measure.train_log import TrainLog


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


@pytest.mark.parametrize("terminal", [False, True])
def test_the_first_rollout_is_a_line_in_the_log_and_where_there_is_no_terminal(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.01)
    monkeypatch.setattr(progress_module, "PLAIN_EVERY_S", 0.01)
    console, file = captured(terminal=terminal)
    steps = [100]
    with (
        closing(TrainLog(tmp_path / "train.log")) as log,
        Progress(INFO, Goal(), console=console, live=terminal, log=log, collected=lambda: steps[0]) as progress,
    ):
        steps[0] += 64
        while "first rollout: 64 steps collected" not in (tmp_path / "train.log").read_text():
            time.sleep(0.01)
        progress.update(iteration(1))
        assert progress.view().collected == 0, "counted from the newest iteration on"
        steps[0] += 5
        assert progress.view().collected == 5
        steps[0] = 1
        assert progress.view().collected == 0, "a worker was replaced"
    assert progress.view().collected == 0
    assert "first rollout: 64 steps collected" in file.getvalue()


@pytest.mark.parametrize("display", ["none", "panel"])
def test_after_its_end_a_display_asks_for_no_steps_which_may_lie_in_freed_memory(display: Any) -> None:
    freed: list[bool] = []

    def collected() -> int:
        assert not freed
        return 7

    console, _ = captured(terminal=False)
    progress = Progress(INFO, Goal(), console=console, collected=collected, display=display)
    progress.start()
    progress.close()
    freed.append(True)
    assert progress.view().collected == 0


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
    assert text.endswith("--logdir 'runs/[red]x'\n"), "the next commands come last"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is shown again


def test_the_bar_is_one_line_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.01)
    console, file = captured(terminal=True)
    with Progress(INFO, Goal(steps=10_000), console=console, live=True, display="bar") as progress:
        for i in range(1, 6):
            progress.update(iteration(i))
        time.sleep(0.05)
        progress.note("a note")
        progress.close(SUMMARY)
    text = file.getvalue()
    assert "note: a note" in text
    assert "finished (" not in text
    assert "32 envs" not in text
    *_, last = text.replace("\r", "\n").splitlines()
    assert "50%  5,000/10,000 steps" in text[text.index("note: a note") :]
    assert last.endswith("\x1b[?25h")


def test_the_log_gets_lines_also_when_quiet(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    with closing(TrainLog(file)) as log, Progress(INFO, Goal(episodes=100), display="none", log=log) as progress:
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


def test_warnings_of_loggers_are_shown_as_notes(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_quiet_prints_nothing_and_starts_no_thread() -> None:
    console, file = captured(terminal=True)
    before = threading.active_count()
    with Progress(INFO, Goal(), console=console, display="none") as progress:
        progress.update(iteration(1))
        progress.note("x")
        assert threading.active_count() == before
        progress.close(SUMMARY)
    assert file.getvalue() == ""


def test_an_answer_is_shown_at_once_and_also_by_a_quiet_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    console, file = captured(terminal=True)
    with Progress(INFO, Goal(), console=console, display="none") as progress:
        progress.answer("Ctrl-C: stopping")
    assert (file.getvalue(), capfd.readouterr().err) == ("", "Ctrl-C: stopping\n")
    monkeypatch.setattr(progress_module, "REFRESH_S", 600.0)
    with Progress(INFO, Goal(), console=console, live=True) as progress:
        progress.answer("Ctrl-C: stopping")
        while "note: Ctrl-C: stopping" not in file.getvalue():
            time.sleep(0.01)
    assert capfd.readouterr().err == ""


def test_a_signal_that_interrupts_a_note_can_note_something_itself() -> None:
    """A lock that the interrupted code holds would never be free."""
    console, file = captured(terminal=False)
    with Progress(INFO, Goal(), console=console) as progress:
        with progress._lock:
            progress.answer("Ctrl-C: stopping")
        progress.close(SUMMARY)
    assert "note: Ctrl-C: stopping" in file.getvalue()


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
    """A terminal that is stopped with Ctrl-S: every write blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.stuck = threading.Event()

    def write(self, text: str) -> int:
        self.stuck.set()
        self.go.wait(30)
        return super().write(text)


def test_a_blocked_terminal_does_not_block_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert time.perf_counter() - began < 10.0, "the terminal blocks for 30 s"
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


def test_iterations_older_than_the_window_are_dropped() -> None:
    progress = Progress(INFO, Goal(), display="none")
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
