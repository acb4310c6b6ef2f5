"""Homes: with a worker for every core, everybody waits on a core of their own.

    worker 0 ── core 0      worker 1 ── core 1      the driver: the last worker's, which rests while it learns

Who is woken runs where the scheduler thinks best at that moment. It cannot know that the one who wakes is about to
sleep and the worker beside it is not, so it has two share a core while another is idle, until it looks again some
milliseconds later. Who waits at home is woken there.

Only the wait is bound. Who works may be moved to wherever there is room, and what it starts meanwhile, be it threads
or an env's own processes, may run anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from paceline.measure.system import affinity
from paceline.runtime.threads import core_budget


class Home:
    """To be entered before going to sleep, and left when awake.

    Args:
        core: Where to wake up.
    """

    def __init__(self, core: int) -> None:
        self._core = {core}
        self._anywhere: set[int] = set()

    def __enter__(self) -> None:
        self._anywhere = os.sched_getaffinity(0)  # each time: whoever is in charge may change it while we run
        if self._core < self._anywhere:
            _move(self._core)

    def __exit__(self, *_: object) -> None:
        if self._core < self._anywhere:
            _move(self._anywhere)


Waiting = AbstractContextManager[None]
"""Where to wait."""


def home(core: int | None) -> Waiting:
    """A core to wait on; None for any."""
    return nullcontext() if core is None else Home(core)


def homes(workers: int) -> Sequence[int | None]:
    """A core for each worker; none where there are more or fewer of them than cores.

    With fewer, the scheduler finds an idle core; and two programs that both counted from the first would meet there.
    """
    cores = affinity()
    fitting = len(cores) == core_budget() == workers > 1 and hasattr(os, "sched_setaffinity")
    return cores if fitting else [None] * workers


def _move(cores: set[int]) -> None:
    with suppress(OSError):  # they may have been taken from this program, or a sandbox may forbid it
        os.sched_setaffinity(0, cores)
