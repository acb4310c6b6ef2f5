"""How libraries are measured in turns: the driver's half of the protocol in windows.py.

A contestant is one library at work in a process of its own, with whatever processes it starts. While the others have
their windows all of them are stopped: some have processes that never rest, and would take time from the others.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import psutil

from paceline.measure.machine import tree_memory_mb

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ANSWER_TIMEOUT_S = 300.0
"""The longest that an iteration may take, beyond the window's length."""
CLOSE_TIMEOUT_S = 15.0


class ContestantFailed(RuntimeError):
    """The process ended or fell silent; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one contestant did in one window."""

    steps: int
    seconds: float
    cores: float
    """CPU time of all its processes, by the time of the window."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """All that it said of it."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


class Contestant:
    """One library in a process of its own; close it.

    Args:
        command: Interpreter, script and arguments.
        log: File for all that it prints.
        path: Folders to put on its import path.
        environment: Variables to set besides.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        path: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        # Each decides on its threads by itself: the makefile's own limits must not reach it.
        variables = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
        variables |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.began = perf_counter()
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=variables
            )
        self._pending = b""
        self.peak_memory_mb = 0.0

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """The next line it says.

        Raises:
            ContestantFailed: It ended, or said nothing for so long.
        """
        if self._process.stdout is None:
            raise ContestantFailed("started without a pipe from it")
        pipe, end = self._process.stdout.fileno(), perf_counter() + timeout_s
        while b"\n" not in self._pending:
            # Processes that it started may hold the pipe open after it died, so silence is looked into.
            if select.select([pipe], [], [], 0.5)[0]:
                data = os.read(pipe, 1 << 16)
                self._pending += data
                if data:
                    continue
                self._process.wait(CLOSE_TIMEOUT_S)
            if self._process.poll() is not None:
                raise ContestantFailed(f"ended with code {self._process.returncode}: {self._last_words()}")
            if perf_counter() > end:
                raise ContestantFailed(f"no answer within {timeout_s:.0f} s: {self._last_words()}")
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def window(self, seconds: float, timeout_s: float = ANSWER_TIMEOUT_S) -> Window:
        """Let it train for so long, to the end of the iteration."""
        if self._process.stdin is None:
            raise ContestantFailed("started without a pipe to it")
        self._signal(signal.SIGCONT)
        before = self._cpu_s()
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContestantFailed(f"has ended: {self._last_words()}") from None
        answer = self.answer(seconds + timeout_s)
        busy_s = self._cpu_s() - before
        # It rests now: looking at its memory disturbs no measurement.
        self.look()
        self._signal(signal.SIGSTOP)
        return Window(int(answer["steps"]), float(answer["seconds"]), busy_s / float(answer["seconds"]), answer)

    def look(self) -> None:
        """Note its memory."""
        try:
            self.peak_memory_mb = max(self.peak_memory_mb, tree_memory_mb(psutil.Process(self._process.pid)))
        except psutil.Error:
            return

    def close(self) -> None:
        """Ask it to end, then end it and all that it started."""
        self._signal(signal.SIGCONT)
        tree = self._tree()[1:]
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in tree:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(tree, timeout=CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tree(self) -> list[psutil.Process]:
        """All its processes, the one that was started first; empty if that is gone."""
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _signal(self, number: signal.Signals) -> None:
        for process in self._tree():
            try:
                process.send_signal(number)
            except psutil.Error:
                continue  # it ended meanwhile

    def _cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        total = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue  # it ended meanwhile
            total += times.user + times.system
        return total

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:]) or "it said nothing"
