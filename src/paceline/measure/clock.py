"""Measures seconds per phase of the training, such as collect and learn, on a monotonic clock.

Phases nest. The time of a nested phase does not count for its parent, so no instant counts twice and the seconds of all
phases add up to the time spent inside of any phase:

    collect |----------        -----|
    wait               |------|
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

if sys.platform == "win32":
    resource = None
else:
    import resource


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds per phase, at one moment or between two."""

    seconds: dict[str, float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    """Elapsed seconds at the same moment, or between both."""

    def since(self, earlier: Phases) -> Phases:
        """Return the difference to `earlier`, for every phase of this snapshot."""
        return Phases(
            {name: s - earlier.seconds.get(name, 0.0) for name, s in self.seconds.items()},
            self.elapsed_s - earlier.elapsed_s,
        )


class Clock:
    """Accumulates seconds per phase. For one thread only, because open phases are a stack.

    Args:
        now: Returns monotonic seconds; tests pass their own.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds: dict[str, float] = {}
        self._phases: dict[str, _Phase] = {}
        self._open: list[str] = []
        self._mark = 0.0
        self._began = now()
        self._earlier_s = 0.0

    def phase(self, name: str) -> _Phase:
        """Return a context manager that adds the time inside of it to phase `name`; costs a microsecond."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = _Phase(self, name)
            self._seconds.setdefault(name, 0.0)
        return phase

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere, such as in a worker."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def pause(self) -> None:
        """Stop counting elapsed time until `restart`."""
        now = self._now()
        self._earlier_s += now - self._began
        self._began = now

    def restart(self, phase: str) -> None:
        """Start counting elapsed time now. The time since creation or `pause` counts only for `phase`."""
        now = self._now()
        self.add(phase, now - self._began)
        self._began = now

    @property
    def elapsed_s(self) -> float:
        """Elapsed seconds since creation or restart, plus those before, also of earlier sessions (`load`)."""
        return self._earlier_s + self._now() - self._began

    def snapshot(self) -> Phases:
        """Return the seconds of all phases up to now, including open ones."""
        now = self._now()
        if self._open:
            self._settle(now)
        return Phases(dict(self._seconds), self._earlier_s + now - self._began)

    def state(self) -> dict[str, float]:
        """Return what a checkpoint stores: elapsed seconds, and seconds by phase."""
        now = self.snapshot()
        return {"elapsed": now.elapsed_s, **{f"phase/{name}": s for name, s in now.seconds.items()}}

    def load(self, state: Mapping[str, float]) -> None:
        """Add the time of earlier sessions, which `state` returned."""
        self._earlier_s += state["elapsed"]
        for key, seconds in state.items():
            if key.startswith("phase/"):
                self.add(key.removeprefix("phase/"), seconds)

    def _settle(self, now: float) -> None:
        """Add the time since the last mark to the innermost open phase."""
        self._seconds[self._open[-1]] += now - self._mark
        self._mark = now

    def _enter(self, name: str) -> None:
        now = self._now()
        if self._open:
            self._settle(now)
        self._open.append(name)
        self._mark = now

    def _leave(self) -> None:
        self._settle(self._now())
        self._open.pop()


class _Phase:
    """A phase as a context manager. It has no state of its own, so it may nest in itself."""

    __slots__ = ("_clock", "_name")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name

    def __enter__(self) -> None:
        self._clock._enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock._leave()


def waits_so_far() -> int:
    """Return the number of voluntary context switches of this process; 0 on systems that do not count them."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
