"""What a person sees while a run goes on.

A thread of its own draws twice a second (one drawing costs this process some 3 ms). The training only
leaves the newest iteration behind and never waits for a terminal: one stopped with Ctrl-S blocks its writers.

    training --- update(iteration) ---> [newest, last seconds] <--- drawn by the thread ---> stderr

On a terminal it is a live panel, elsewhere a line every five seconds, and nothing when quiet.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live

from paceline.measure.panel import View, first_lines, last_lines, panel, plain_line
from paceline.measure.record import Evaluation, Goal, Iteration, RunInfo, Summary

REFRESH_S = 0.5
PLAIN_EVERY_S = 5.0
PATIENCE_S = 1.0
"""How long the start and the end may wait for a terminal."""
WINDOW_S = 10.0
"""Rates and phase shares are of the last so many seconds."""


class Progress:
    """The display of one run: `with Progress(...) as progress: progress.update(iteration)`.

    Args:
        info: For the first line.
        goal: For the bar and the time left.
        quiet: Show nothing.
        console: Where to draw; stderr unless told.
        live: Whether to draw a panel; None looks at the console.
    """

    def __init__(
        self,
        info: RunInfo,
        goal: Goal,
        *,
        quiet: bool = False,
        console: Console | None = None,
        live: bool | None = None,
    ) -> None:
        self._info = info
        self._goal = goal
        self._quiet = quiet
        self._console = console or Console(stderr=True, highlight=False)
        if live is None:
            live = self._console.is_terminal and not self._console.is_dumb_terminal
            live = live and self._console.encoding == "utf-8"
        self._is_live = live
        self._lock = threading.Lock()  # of the fields below, held for moments only
        self._recent: deque[Iteration] = deque()
        self._returns: deque[float] = deque(maxlen=4096)
        self._last_eval: Evaluation | None = None
        self._best_eval: Evaluation | None = None
        self._notes: deque[str] = deque()
        self._updated = time.perf_counter()
        self._summary: Summary | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._plain_at = float("-inf")
        self._plain_iteration = 0

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Print the first line and begin to draw."""
        if self._quiet or self._thread is not None:
            return
        self._updated = time.perf_counter()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        self._thread.start()
        self._ready.wait(PATIENCE_S)

    def update(self, iteration: Iteration) -> None:
        """Leave the newest iteration for the display. Never blocks."""
        with self._lock:
            self._recent.append(iteration)
            while len(self._recent) > 1 and self._recent[0].wall_s < iteration.wall_s - WINDOW_S:
                self._recent.popleft()
            if iteration.ep_rew_mean is not None:
                self._returns.append(iteration.ep_rew_mean)
            if iteration.evaluation is not None:
                self._last_eval = iteration.evaluation
                if self._best_eval is None or iteration.evaluation.mean_reward > self._best_eval.mean_reward:
                    self._best_eval = iteration.evaluation
            self._updated = time.perf_counter()

    def note(self, text: str) -> None:
        """Say something above the panel: a worker was replaced, a save has failed. Never blocks."""
        with self._lock:
            self._notes.append(text)

    def close(self, summary: Summary | None = None) -> None:
        """Stop drawing and print the last lines. May be called twice; waits for a stuck terminal a second at most."""
        if self._thread is None:
            return
        self._summary = summary
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        self._thread = None

    def view(self) -> View:
        """What the display shows at this moment."""
        with self._lock:
            recent = list(self._recent)
            returns = list(self._returns)
            last_eval, best_eval = self._last_eval, self._best_eval
            since_s = time.perf_counter() - self._updated
        newest = recent[-1] if recent else None
        return View(
            newest=newest,
            wall_s=(newest.wall_s if newest else 0.0) + since_s,
            since_s=since_s,
            recent=recent,
            returns=returns,
            last_eval=last_eval,
            best_eval=best_eval,
            goal=self._goal,
            info=self._info,
        )

    def _show(self) -> None:
        """All writing happens here, in the thread."""
        live = Live(console=self._console, auto_refresh=False, transient=True) if self._is_live else None
        try:
            self._say(first_lines(self._info))
            if live is not None:
                live.start()
            self._ready.set()
            try:
                while not self._stopping.wait(REFRESH_S):
                    self._draw(live)
                self._draw(live, last=True)
            finally:
                if live is not None:
                    live.stop()
            if self._summary is not None:
                self._say(last_lines(self._summary, self._info))
        except (OSError, ValueError):
            pass  # the terminal is gone; the run is not

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=not self._is_live)

    def _draw(self, live: Live | None, *, last: bool = False) -> None:
        with self._lock:
            notes = [f"note: {note}" for note in self._notes]
            self._notes.clear()
        self._say(notes)
        view = self.view()
        if live is not None:
            live.update(panel(view, self._console.width), refresh=True)
            return
        now = time.perf_counter()
        if view.newest is None or view.newest.iteration == self._plain_iteration:
            return
        if last or now - self._plain_at >= PLAIN_EVERY_S:
            self._say([plain_line(view)])
            self._plain_at, self._plain_iteration = now, view.newest.iteration


def restore_streams() -> None:
    """Undo the live panel's hold on stdout and stderr, in a forked child: it must not draw."""
    if isinstance(sys.stdout, FileProxy):
        sys.stdout = sys.stdout.rich_proxied_file
    if isinstance(sys.stderr, FileProxy):
        sys.stderr = sys.stderr.rich_proxied_file


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=restore_streams)
