"""Wait affinity: with one worker per core, each process is bound to its own core while it blocks.

    worker 0 ── core 0      worker 1 ── core 1      driver: the core of the last worker, which idles while it learns

The scheduler chooses the core of a process when it is woken. It cannot know that the process that wakes it is about to
sleep and that the worker on the other core is not. So two processes share a core while another core is idle, until the
load balancer corrects that some milliseconds later. A process that blocks on its own core is woken on that core.

Only the wait is bound. While a process works the scheduler may move it to any core, and threads or processes that it
starts meanwhile (those of an env, for instance) may run anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from paceline.system.limits import affinity
from paceline.system.threads import core_budget


class WaitAffinity:
    """Context manager around a blocking call: enter before sleeping, leave when awake.

    Args:
        core: The core to wake up on.
    """

    def __init__(self, core: int) -> None:
        self._core = {core}
        self._anywhere: set[int] = set()

    def __enter__(self) -> None:
        self._anywhere = os.sched_getaffinity(0)  # read each time: the user may change it while the process runs
        if self._core < self._anywhere:
            _move(self._core)

    def __exit__(self, *_: object) -> None:
        if self._core < self._anywhere:
            _move(self._anywhere)


Waiting = AbstractContextManager[None]
"""Context manager around a blocking call."""


def wait_on(core: int | None) -> Waiting:
    """Return a context manager that binds to a core, or one that does nothing for None."""
    return nullcontext() if core is None else WaitAffinity(core)


def wait_cores(workers: int) -> Sequence[int | None]:
    """Return a core for each worker; None for each if there are more or fewer workers than cores.

    With fewer workers the scheduler finds an idle core by itself, and two programs that both count from the first core
    would collide there.
    """
    cores = affinity()
    fitting = len(cores) == core_budget() == workers > 1 and hasattr(os, "sched_setaffinity")
    return cores if fitting else [None] * workers


def _move(cores: set[int]) -> None:
    with suppress(OSError):  # these cores may have been taken from the process, or a sandbox may forbid it
        os.sched_setaffinity(0, cores)
