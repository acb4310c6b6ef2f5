"""Run one library in a child process and measure it in windows: the driver's half of the protocol in windows.py.

Between its windows a contestant is stopped with all its processes (SIGSTOP): some libraries have processes that never
block and would take CPU time from the contestant that is being measured.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.harness.paths import LOGS, ROOT, SOURCE
from paceline.measure.machine import tree_memory_mb

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
REPLY_TIMEOUT_S = 300.0
"""Longest time that an iteration may take beyond the length of its window."""
CLOSE_TIMEOUT_S = 15.0


class ContestantFailed(RuntimeError):
    """The child process ended or did not reply in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one contestant did in one window."""

    steps: int
    seconds: float
    cores: float
    """CPU time of all its processes divided by the length of the window."""
    reply: Mapping[str, Any] = field(default_factory=dict)
    """The child's whole reply, with the entries that only some children send."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


class Contestant:
    """A library that trains in a child process of its own. Close it, or use it as a context manager.

    Args:
        module: Module that the child runs, as in `python -m MODULE SETTINGS`.
        settings: Passed as JSON in the only argument.
        log: Name of a file in `.logs/` for everything that the child prints.
        python: Interpreter; by default the one of this process.
        source: Folder with the `paceline` package to import, by default that of this checkout. None leaves
            `paceline` off the import path, for environments of other libraries.
    """

    def __init__(
        self,
        module: str,
        settings: Mapping[str, Any],
        *,
        log: str,
        python: str | Path = sys.executable,
        source: Path | None = SOURCE,
    ) -> None:
        self._log = LOGS / log
        self._log.parent.mkdir(parents=True, exist_ok=True)
        # The makefile limits the threads of this process; each library decides about its own threads.
        variables = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
        path = [ROOT] if source is None else [source, ROOT]
        variables |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONUNBUFFERED": "1"}
        self.began = perf_counter()
        with self._log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(python), "-m", module, json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=variables, cwd=ROOT,
            )  # fmt: skip
        self._pending = b""
        self.peak_memory_mb = 0.0

    def read_reply(self, timeout_s: float = REPLY_TIMEOUT_S) -> dict[str, Any]:
        """Block until the child has sent its next reply, and return it.

        Raises:
            ContestantFailed: The child ended, or sent nothing for `timeout_s`.
        """
        if self._process.stdout is None:
            raise ContestantFailed("started without a pipe from the child")
        pipe, end = self._process.stdout.fileno(), perf_counter() + timeout_s
        while b"\n" not in self._pending:
            # Grandchildren may keep the pipe open after the child died, so check the child itself every half second.
            if select.select([pipe], [], [], 0.5)[0]:
                data = os.read(pipe, 1 << 16)
                self._pending += data
                if data:
                    continue
                self._process.wait(CLOSE_TIMEOUT_S)
            if self._process.poll() is not None:
                raise ContestantFailed(f"ended with code {self._process.returncode}: {self._end_of_log()}")
            if perf_counter() > end:
                raise ContestantFailed(f"no reply within {timeout_s:.0f} s: {self._end_of_log()}")
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def window(self, seconds: float, timeout_s: float = REPLY_TIMEOUT_S) -> Window:
        """Resume the child, train for at least `seconds` and to the end of the iteration, and stop it again."""
        if self._process.stdin is None:
            raise ContestantFailed("started without a pipe to the child")
        self._signal(signal.SIGCONT)
        before = self._cpu_s()
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContestantFailed(f"has ended: {self._end_of_log()}") from None
        reply = self.read_reply(seconds + timeout_s)
        busy_s = self._cpu_s() - before
        self.sample_memory()  # outside the window, where it disturbs no measurement
        self._signal(signal.SIGSTOP)
        return Window(int(reply["steps"]), float(reply["seconds"]), busy_s / float(reply["seconds"]), reply)

    def sample_memory(self) -> None:
        """Update `peak_memory_mb` with the memory of all its processes now."""
        try:
            self.peak_memory_mb = max(self.peak_memory_mb, tree_memory_mb(psutil.Process(self._process.pid)))
        except psutil.Error:
            return

    def close(self) -> None:
        """Close stdin so that the child exits, then kill it and its descendants if they are still alive."""
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
        """The child and its descendants, the child first; empty if the child has ended."""
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
                continue  # it has ended in the meantime

    def _cpu_s(self) -> float:
        """CPU time of all its processes since they started."""
        total = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue  # it has ended in the meantime
            total += times.user + times.system
        return total

    def _end_of_log(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:]) or "its log is empty"
