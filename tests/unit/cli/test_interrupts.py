"""Ctrl-C on the command line: one answer at once, and exit code 130 whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import cli
from paceline.cli.interrupts import Interrupts

ENDS = """
import atexit, signal, sys
from paceline import cli

def press(times=1):
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)

def interrupted(*_):
    {inside}

cli._exit_code = interrupted
atexit.register({at_exit})
sys.exit(cli.main())
"""


def with_sources() -> dict[str, str]:
    """The environment of a process that runs elsewhere."""
    return {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}


class Exited(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Exited

    monkeypatch.setattr(os, "_exit", end)
    return codes


def test_two_interrupts_raise_and_the_third_ends_the_process(exits: list[int]) -> None:
    interrupts = Interrupts()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts(signal.SIGINT, None)
    assert exits == []
    with pytest.raises(Exited):
        interrupts(signal.SIGINT, None)
    assert exits == [130]


def test_after_the_command_has_returned_an_interrupt_ends_the_process_with_its_code(exits: list[int]) -> None:
    interrupts = Interrupts()
    interrupts.returned, interrupts.exit_code = True, 2
    with pytest.raises(Exited):
        interrupts(signal.SIGINT, None)
    assert exits == [2]


def test_the_answer_is_written_once_and_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    interrupts = Interrupts()
    for answer in ("interrupted\n", ""):
        with pytest.raises(KeyboardInterrupt):
            interrupts(signal.SIGINT, None)
        assert capfd.readouterr().err == answer
    assert interrupts.raised == 2


@pytest.mark.parametrize(
    ("inside", "at_exit", "code"),
    [
        pytest.param("press()", "int", 130, id="once"),
        pytest.param("press(); return 0", "press", 130, id="and at exit"),
        pytest.param("\n    try: press()\n    finally: press()", "press", 130, id="twice and at exit"),
        pytest.param("\n    try: press()\n    except KeyboardInterrupt: return 130", "press", 130, id="handled"),
        pytest.param("exec('press()')", "int", 130, id="in exec, which CPython remembers"),
        pytest.param("return 0", "press", 0, id="at exit"),
        pytest.param("return 2", "press", 2, id="at the exit of an error"),
    ],
)
def test_no_moment_of_an_interrupt_gives_a_traceback_or_a_signal(
    inside: str, at_exit: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "ends.py").write_text(ENDS.format(inside=inside, at_exit=at_exit))
    done = subprocess.run(
        [sys.executable, "-m", "ends"], cwd=tmp_path, env=with_sources(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_an_interrupt_at_any_bytecode_of_the_end_gives_130_and_no_traceback(tmp_path: Path) -> None:
    """A second interrupt is raised before one instruction of `main` that follows the first, in each process."""
    script = tmp_path / "trace.py"
    script.write_text(
        """
import signal, sys
from paceline import cli

at, seen = int(sys.argv[1]), 0

def trace(frame, event, _):
    global seen
    if frame.f_code is not cli.main.__code__ or event not in ("call", "opcode"):
        return trace if frame.f_code is cli.main.__code__ else None
    frame.f_trace_opcodes = True
    if armed:
        seen += 1
        if seen == at:
            signal.raise_signal(signal.SIGINT)
    return trace

def interrupted(*_):
    global armed
    armed = True
    raise KeyboardInterrupt

armed = False
cli._exit_code = interrupted
sys.settrace(trace)
code = cli.main()
sys.settrace(None)
print(seen)
sys.exit(code)
"""
    )

    def run(at: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(script), str(at)], capture_output=True, text=True, timeout=60)

    moments = int(run(0).stdout)
    assert moments > 3
    for at in range(1, moments + 1):
        done = run(at)
        assert (done.returncode, "Traceback" in done.stderr) == (130, False), (at, done.stderr)
