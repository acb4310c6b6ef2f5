"""Displays the progress of a run: a panel or a bar on a terminal or in Jupyter, otherwise a line every five seconds.

    training --- update(iteration) ---> [newest, last seconds] <--- read once a second by the display thread ---> stderr

Only the display thread writes to the terminal, because a terminal that is stopped with Ctrl-S blocks its writers. It
draws once a second: a drawing holds the GIL for about 2 ms, and longer if all cores are busy. The log gets its lines
from the training's thread, so that it is complete if the terminal is closed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Literal, TypeAlias

from rich.console import Console
from rich.file_proxy import FileProxy

from paceline.measure.next_commands import next_commands
from paceline.measure.panel import bar_line, first_lines, last_lines, panel, plain_line
from paceline.measure.record import EvaluationRow, Goal, Iteration, RunInfo, Summary
from paceline.measure.screen import screen_for
from paceline.measure.train_log import LOGGER, TrainLog
from paceline.measure.view import View

REFRESH_S = 1.0
PLAIN_EVERY_S = 5.0
PATIENCE_S = 1.0
"""How long `start` and `close` may wait for the terminal."""
WINDOW_S = 10.0
"""Rates and phase shares cover this many seconds."""

Display: TypeAlias = Literal["none", "bar", "panel"]
"""What is shown during a run: nothing, one line with a progress bar, or the panel with its first and last lines."""


class Progress:
    """The display of one run: `with Progress(...) as progress: progress.update(iteration)`.

    Args:
        info: Data for the first lines.
        goal: Budgets, for the bar and the remaining time.
        display: What to show.
        console: Where to draw; None for stderr.
        live: Whether to redraw in place; None decides by the console.
        log: Receives the first and last lines, notes, and a line every five seconds, whatever is displayed.
        collected: Returns the steps that workers have collected so far. Called until `close`, in the display thread.
    """

    def __init__(
        self,
        info: RunInfo,
        goal: Goal,
        *,
        display: Display = "panel",
        console: Console | None = None,
        live: bool | None = None,
        log: TrainLog | None = None,
        collected: Callable[[], int] | None = None,
    ) -> None:
        self._info = info
        self._log = log
        self._logged = float("-inf")
        self._warnings = _Warnings(self._show_note)
        self._goal = goal
        self._display = display
        self._console = console or Console(stderr=True, highlight=False)
        self._screen = None if display == "none" else screen_for(self._console, live)
        self._notes: SimpleQueue[str] = SimpleQueue()  # its `put` may interrupt itself, in a signal handler
        self._lock = threading.Lock()  # protects the fields below; only held briefly
        self._collected = collected or _nothing
        self._counted = 0  # what `collected` returned after the newest iteration
        self._recent: deque[Iteration] = deque()
        self._returns: deque[float] = deque(maxlen=4096)
        self._last_eval: EvaluationRow | None = None
        self._best_eval: EvaluationRow | None = None
        self._updated = time.perf_counter()
        self._summary: Summary | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._plain_at = time.perf_counter()
        self._plain_iteration = 0

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Print the first lines and start the display thread."""
        if self._thread is not None:
            return
        self._to_log(first_lines(self._info))
        self._counted = self._collected()
        if self._display == "none":
            return
        logging.getLogger(LOGGER).addHandler(self._warnings)
        self._updated = time.perf_counter()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        self._thread.start()
        self._ready.wait(PATIENCE_S)

    def update(self, iteration: Iteration) -> None:
        """Store the newest iteration for the display. Never blocks on the terminal."""
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
            self._updated = now = time.perf_counter()
            self._counted = self._collected()
        if self._log is not None and now - self._logged >= PLAIN_EVERY_S:
            self._to_log([plain_line(self.view())])
            self._logged = now

    def note(self, text: str, detail: str = "") -> None:
        """Print a note above the panel, such as that a worker was replaced. Never blocks on the terminal.

        Args:
            text: One line.
            detail: Further lines, for the log only.
        """
        self._to_log([f"{text}\n{detail}" if detail else text])
        self._show_note(text)

    def answer(self, text: str) -> None:
        """Show a note about a signal at once, also if nothing else is displayed. May be called in a signal handler."""
        self.note(text)
        if self._display == "none":
            with suppress(OSError, ValueError, AttributeError):  # stderr may be missing, or closed
                os.write(sys.stderr.fileno(), f"{text}\n".encode())

    def close(self, summary: Summary | None = None) -> None:
        """Stop the thread and print the last lines. Idempotent; waits for a blocked terminal a second at most."""
        if summary is not None and self._summary is None:
            self._to_log(last_lines(summary, self._info, self._goal))
            self._summary = summary
        logging.getLogger(LOGGER).removeHandler(self._warnings)
        if self._thread is not None:
            self._stopping.set()
            self._notes.put("")
            self._thread.join(PATIENCE_S)
            self._thread = None
        with self._lock:
            self._collected = _nothing  # what it reads may be gone before a blocked terminal lets the thread go on

    def view(self) -> View:
        """Return the data that the display shows now."""
        with self._lock:
            recent = list(self._recent)
            returns = list(self._returns)
            last_eval, best_eval = self._last_eval, self._best_eval
            since_s = time.perf_counter() - self._updated
            collected = max(0, self._collected() - self._counted)  # the count of a replaced worker starts again
        newest = recent[-1] if recent else None
        return View(
            newest=newest,
            wall_s=(newest.wall_s if newest else 0.0) + since_s,
            since_s=since_s,
            collected=collected,
            recent=recent,
            returns=returns,
            last_eval=last_eval,
            best_eval=best_eval,
            goal=self._goal,
            info=self._info,
        )

    def _show(self) -> None:
        """The display thread, which does all writing."""
        screen = self._screen
        try:
            if self._display == "panel":
                self._say(first_lines(self._info))
            if screen is not None:
                screen.start()
            self._ready.set()
            try:
                while not self._stopping.is_set():
                    self._draw(self._wait_for_notes())
                self._draw(self._wait_for_notes(0.0), last=True)
            finally:
                if screen is not None:
                    screen.stop(keep=self._display == "bar")
            if self._summary is not None and self._display == "panel":
                self._say(last_lines(self._summary, self._info, self._goal))
                self._say(next_commands(self._summary, self._info, self._goal), wrap=False)
        except (OSError, ValueError):
            pass  # the terminal was closed, and the run continues

    def _to_log(self, lines: Sequence[str]) -> None:
        if self._log is not None:
            for line in lines:
                self._log.say(line)

    def _show_note(self, text: str) -> None:
        if self._display != "none":
            self._notes.put(text)

    def _wait_for_notes(self, timeout_s: float | None = None) -> list[str]:
        """Return the notes so far. Waits for the first one until the timeout, which is the time between drawings."""
        notes = []
        with suppress(Empty):
            notes.append(self._notes.get(timeout=REFRESH_S if timeout_s is None else timeout_s))
            while True:
                notes.append(self._notes.get_nowait())
        return [note for note in notes if note]

    def _say(self, lines: Sequence[str], *, wrap: bool = True) -> None:
        if self._screen is not None:
            self._screen.say(lines, wrap=wrap)
            return
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=True)

    def _draw(self, notes: Sequence[str], *, last: bool = False) -> None:
        self._say([f"note: {note}" for note in notes])
        view, now = self.view(), time.perf_counter()
        due = now - self._plain_at >= PLAIN_EVERY_S
        if self._screen is not None:
            draw = bar_line if self._display == "bar" else panel
            self._screen.draw(draw(view, self._screen.width))
        if view.newest is None and due:
            self._to_log([plain_line(view)])  # the training's thread logs iterations only, and the first may take long
        new = view.newest is not None and view.newest.iteration != self._plain_iteration
        if (due and view.newest is None) or (new and (due or last or not self._plain_iteration)):
            if self._screen is None:
                self._say([plain_line(view)])
            self._plain_at, self._plain_iteration = now, 0 if view.newest is None else view.newest.iteration


def _nothing() -> int:
    return 0


class _Warnings(logging.Handler):
    """Shows logged warnings as notes: written directly to stderr, they would break the live panel."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the warning to the display."""
        self._show(record.getMessage())


def restore_streams() -> None:
    """Restore stdout and stderr, which a live panel replaces; called in a forked child, which must not draw."""
    if isinstance(sys.stdout, FileProxy):
        sys.stdout = sys.stdout.rich_proxied_file
    if isinstance(sys.stderr, FileProxy):
        sys.stderr = sys.stderr.rich_proxied_file


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=restore_streams)
