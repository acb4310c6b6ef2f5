"""Where the time goes: seconds per phase on a monotonic clock.

Phases nest, and a nested phase is taken out of its parent, so the seconds of all phases
never count an instant twice and add up to the time spent inside any of them:

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
    """Seconds and entries per phase, at one moment or between two."""

    seconds: dict[str, float] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def since(self, earlier: Phases) -> Phases:
        """What was added after `earlier`; every phase known now is named, if only with zero."""
        return Phases(
            {name: s - earlier.seconds.get(name, 0.0) for name, s in self.seconds.items()},
            {name: n - earlier.count.get(name, 0) for name, n in self.count.items()},
        )


class Clock:
    """Accumulates seconds per phase. For one thread: phases are a stack.

    Args:
        now: The timer in seconds; anything but a monotonic one is for tests.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds: dict[str, float] = {}
        self._count: dict[str, int] = {}
        self._phases: dict[str, _Phase] = {}
        self._open: list[str] = []
        self._mark = 0.0
        self._began = now()
        self._earlier_s = 0.0

    def phase(self, name: str) -> _Phase:
        """Context manager that books the time inside it under `name`; costs about a microsecond."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = _Phase(self, name)
            self._seconds.setdefault(name, 0.0)
            self._count.setdefault(name, 0)
        return phase

    def add(self, name: str, seconds: float, count: int = 1) -> None:
        """Book seconds that were measured elsewhere, e.g. by a worker."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._count[name] = self._count.get(name, 0) + count

    def pause(self) -> None:
        """The run rests: what was spent is kept as elapsed, and what comes until `restart` does not count."""
        now = self._now()
        self._earlier_s += now - self._began
        self._began = now

    def restart(self, phase: str) -> None:
        """The run begins now, or goes on: the time since creation or `pause` is booked under `phase` alone."""
        now = self._now()
        self.add(phase, now - self._began)
        self._began = now

    @property
    def elapsed_s(self) -> float:
        """Seconds since this clock was made or restarted, plus those of earlier sessions (`load`)."""
        return self._earlier_s + self._now() - self._began

    def snapshot(self) -> Phases:
        """All phases up to this moment, the ones still open included."""
        if self._open:
            self._settle(self._now())
        return Phases(dict(self._seconds), dict(self._count))

    def delta(self, earlier: Phases) -> Phases:
        """What was spent since `earlier`, a snapshot of this clock."""
        return self.snapshot().since(earlier)

    def state(self) -> dict[str, float]:
        """What a resumed run needs to go on counting: seconds by phase, and `elapsed`."""
        return {"elapsed": self.elapsed_s, **{f"phase/{name}": s for name, s in self.snapshot().seconds.items()}}

    def load(self, state: Mapping[str, float]) -> None:
        """Add the time of earlier sessions, as their `state` gave it."""
        self._earlier_s += state["elapsed"]
        for key, seconds in state.items():
            if key.startswith("phase/"):
                self.add(key.removeprefix("phase/"), seconds, count=0)

    def _settle(self, now: float) -> None:
        """Book the time since the last mark to the innermost open phase."""
        self._seconds[self._open[-1]] += now - self._mark
        self._mark = now

    def _enter(self, name: str) -> None:
        now = self._now()
        if self._open:
            self._settle(now)
        self._open.append(name)
        self._count[name] += 1
        self._mark = now

    def _leave(self) -> None:
        self._settle(self._now())
        self._open.pop()


class _Phase:
    """One name of a clock as a context manager. Holds no state, so it may nest in itself."""

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
    """How often this process has given the CPU up by itself; always 0 where the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
