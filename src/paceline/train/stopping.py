"""What Ctrl-C and SIGTERM do to a run: it ends with a checkpoint, after the current rollout or at once.

    first    the run ends after the rollout and its update; an evaluation is cut off
    second   a rollout is cut off, and the state of the last update is saved; an update or a save is finished first
    third    if an update or a save is still not finished: KeyboardInterrupt, without a checkpoint

Every signal is answered at once, with what the next one would do.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NoReturn, TypeAlias

Waiting: TypeAlias = Literal["rollout", "evaluation"]


class StopNow(KeyboardInterrupt):
    """A signal cuts off a rollout or an evaluation. No `except Exception` of an env catches a KeyboardInterrupt."""


class Interruptible:
    """Marks when a signal may raise StopNow: while the state of the last update can still be saved."""

    def __init__(self) -> None:
        self.waiting: Waiting | None = None
        """What the training waits for; None while it learns, saves or counts, which must not be cut off."""

    @contextmanager
    def during(self, waiting: Waiting) -> Iterator[None]:
        """Allow StopNow inside of the block."""
        before, self.waiting = self.waiting, waiting
        try:
            yield
        finally:
            self.waiting = before


class Stopper:
    """The handler of SIGINT (Ctrl-C) and SIGTERM during a session.

    Args:
        stop: Ends the session after the current iteration, for a reason: the name of the signal.
        answer: Shows a line to the user. It is called in a signal handler, and must take no lock of the main thread.
        interruptible: Whether the training can be cut off now.
    """

    def __init__(
        self, stop: Callable[[str], None], answer: Callable[[str], None], interruptible: Interruptible
    ) -> None:
        self._stop, self._answer, self._interruptible = stop, answer, interruptible
        self._stopping = self._finishing = False
        self.cut_off = False
        """Whether a rollout was cut off. Ray turns the StopNow into a KeyboardInterrupt."""

    def __call__(self, number: int) -> None:
        """Answer the signal, and raise StopNow or KeyboardInterrupt if it is to act at once."""
        name = signal.Signals(number).name
        key = "Ctrl-C" if number == signal.SIGINT else name
        waiting, first = self._interruptible.waiting, not self._stopping
        self._stopping = True
        self._stop(name)
        if waiting == "evaluation":
            self._answer(f"{key}: stopping; the evaluation is cut off")
            self._raise_stop_now()
        if first and waiting is None:
            self._answer(f"{key}: stopping after this update")
        elif first:
            self._answer(
                f"{key}: stopping after this rollout. {key} again stops now: "
                "that loses the steps of this rollout, and nothing of earlier ones"
            )
        elif waiting is not None:
            self._answer(f"{key}: stopping now, with the state of the last update")
            self.cut_off = True
            self._raise_stop_now()
        elif not self._finishing:
            self._finishing = True
            self._answer(
                f"{key}: stopping as soon as the update or checkpoint under way is complete. "
                f"{key} again ends without it: that loses what was learned after the last checkpoint"
            )
        else:
            raise KeyboardInterrupt

    def _raise_stop_now(self) -> NoReturn:
        self._interruptible.waiting = None  # so that the next signal does not interrupt the save that follows
        raise StopNow
