"""Screens: a terminal that redraws, and one Jupyter output that updates in place."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from tests.unit.measure.iterations import INFO, SUMMARY, iteration

from paceline.measure import progress as progress_module
from paceline.measure.progress import Progress
from paceline.measure.record import Goal
from paceline.measure.screen import NotebookScreen, TerminalScreen, screen_for


class Outputs:
    """Stands in for `IPython.display`: the outputs of a cell, and how often each was updated."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.updates = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Outputs:
        assert raw
        assert display_id
        self.shown.append(data)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.updates += 1
        self.shown[-1] = data


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    found = Outputs()
    module: Any = ModuleType("IPython.display")
    module.display = found.display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found


def test_consoles_get_the_screen_that_they_can_show(outputs: Outputs) -> None:
    file = io.StringIO()
    assert screen_for(Console(file=file), None) is None
    assert screen_for(Console(file=file, force_terminal=True), False) is None
    assert isinstance(screen_for(Console(file=file), True), TerminalScreen)
    assert isinstance(screen_for(Console(file=file, force_jupyter=True), None), NotebookScreen)


def test_a_long_command_on_a_terminal_is_one_line_that_can_be_copied() -> None:
    file, command = io.StringIO(), f"paceline eval {'runs/' * 20}"
    TerminalScreen(Console(file=file, force_terminal=True, width=40)).say([command], wrap=False)
    assert file.getvalue() == f"{command}\n"


def test_the_cursor_waits_on_a_line_of_its_own_so_that_an_echoed_ctrl_c_wraps_no_full_line() -> None:
    """A wrapped line would be a line more than the next drawing removes: the first one would stay for ever."""
    file = io.StringIO()
    screen = TerminalScreen(Console(file=file, force_terminal=True, width=40))
    screen.start()
    screen.draw(Text("x" * 40))
    assert file.getvalue().endswith("x" * 40 + "\n")
    screen.stop(keep=True)
    kept = file.getvalue().rpartition("x" * 40)[2]
    assert kept.count("\n") == 1, "no empty line below the bar that stays"


def test_a_notebook_has_one_output_that_is_updated(outputs: Outputs) -> None:
    screen = NotebookScreen()
    screen.start()
    screen.say([])
    assert outputs.shown == []
    screen.say(["run [bold]one"])
    for number in range(3):
        screen.draw(Text(f"step {number}", style="cyan"))
    assert len(outputs.shown) == 1
    assert outputs.updates == 3
    assert outputs.shown[0]["text/plain"] == "run [bold]one\nstep 2\n"
    assert "run [bold]one" in outputs.shown[0]["text/html"]
    assert "<span style=" in outputs.shown[0]["text/html"]
    screen.stop(keep=False)
    assert outputs.shown[0]["text/plain"] == "run [bold]one\n"


@pytest.mark.parametrize("display", ["bar", "panel"])
def test_a_run_in_a_notebook_shows_one_output(outputs: Outputs, monkeypatch: pytest.MonkeyPatch, display: Any) -> None:
    monkeypatch.setattr(progress_module, "REFRESH_S", 0.001)
    console = Console(file=io.StringIO(), force_jupyter=True)
    with Progress(INFO, Goal(steps=10_000), console=console, display=display) as progress:
        for number in range(1, 11):
            progress.update(iteration(number))
        progress.note("worker 1 was replaced")
        progress.close(SUMMARY)
    assert len(outputs.shown) == 1
    text = outputs.shown[0]["text/plain"]
    assert "note: worker 1 was replaced" in text
    assert ("100%" in text) == (display == "bar"), "the bar stays, the panel gives way to the last lines"
    assert ("finished (" in text) == (display == "panel")
