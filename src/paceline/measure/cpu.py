"""How much CPU time a run got, and what it asked for: whether other programs had the cores that it could have used.

time of the cores   |--- the run ---|------ other programs, other virtual machines ------|-- idle --|
asked for           |--- the run ---|--- its processes were ready to run, without core ---|
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import NamedTuple

import psutil

from paceline.system.limits import affinity, throttling

PROC = Path("/proc")
NOT_BUSY = frozenset({"idle", "iowait", "guest", "guest_nice", "interrupt", "dpc"})
"""Entries of `psutil.cpu_times` that are no work, or that another entry contains."""
LEAST = 0.1
"""Others are mentioned if they use more than this fraction of the cores."""
LACK = 0.2
"""A run is short of CPU if others had more than this fraction of what it asked for."""
FULL = 0.9
"""Where the system does not tell how long processes wait for a core: the cores are full from this fraction on."""


def waited_s(pid: int) -> float:
    """Return how long the main thread of a process was ready to run without a core; NaN if the system does not tell."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return math.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuSupply:
    """CPU time that a run got, in cores: 1.5 is one and a half busy cores on average."""

    cores: int
    """Cores that it may use."""
    own: float
    """Used by its processes."""
    others: float
    """Used by other programs, and by other virtual machines on the same host."""
    waiting: float | None = None
    """Its processes that were ready to run and had no core; None if the system does not tell."""
    throttled: float = 0.0
    """Fraction of the time slices in which the CPU quota of its control group stopped it."""

    @property
    def others_share(self) -> float:
        """Fraction of the cores that others used."""
        return self.others / self.cores

    @property
    def quiet(self) -> bool:
        """Whether others used too little of the cores to mention them."""
        return self.others_share <= LEAST

    @property
    def missing(self) -> float:
        """Cores that it asked for and that others had."""
        if self.waiting is None:
            return self.others if self.own + self.others >= FULL * self.cores else 0.0
        return min(self.waiting, self.others)

    def scalars(self) -> dict[str, float]:
        """Return what is recorded beside the CPU use, by tag without the prefix `system/`: in percent of one core."""
        waiting = {} if self.waiting is None else {"cpu_waiting_percent": 100.0 * self.waiting}
        return {"cpu_others_percent": 100.0 * self.others, **waiting, "cpu_throttled_percent": 100.0 * self.throttled}

    def shortage(self) -> str:
        """Return in words that the run got less CPU than it asked for, and who had it; empty if it got it."""
        if self.throttled > LEAST:
            return f"the CPU quota of its control group (cgroup) stopped it in {self.throttled:.0%} of the time slices"
        if self.quiet or self.missing <= LACK * (self.own + self.missing):
            return ""
        return (
            f"it got {self.own:.1f} of the {self.own + self.missing:.1f} cores that it asked for, {self.others_text()}"
        )

    def others_text(self) -> str:
        """Return in words how much others used."""
        return f"while other programs or virtual machines used {self.others_share:.0%} of the {self.cores} cores"


class CpuSeconds(NamedTuple):
    """What is counted, and summed over the samples of a run."""

    elapsed_s: float = 0.0
    own_s: float = 0.0
    others_s: float = 0.0
    waiting_s: float = 0.0
    """NaN if the system does not tell."""
    throttled: int = 0
    slices: int = 0

    def plus(self, other: CpuSeconds) -> CpuSeconds:
        """Return the sum of both, field by field."""
        return CpuSeconds(*map(add, self, other))

    def supply(self, cores: int) -> CpuSupply | None:
        """Return the CPU time per second; None if no time has passed."""
        if self.elapsed_s <= 0:
            return None
        return CpuSupply(
            cores=cores,
            own=self.own_s / self.elapsed_s,
            others=self.others_s / self.elapsed_s,
            waiting=None if math.isnan(self.waiting_s) else self.waiting_s / self.elapsed_s,
            throttled=self.throttled / max(1, self.slices),
        )


class CpuMeter:
    """Compares what some processes used with what the cores did. One counter read takes some 50 microseconds.

    Args:
        now: Present time in seconds.
    """

    def __init__(self, now: float) -> None:
        self.cores = affinity()
        self.total = CpuSeconds()
        """Everything since the meter was made."""
        self._at, self._before = now, self._counters()

    def __call__(self, now: float, own_s: float, waiting_s: float) -> CpuSupply | None:
        """Return the supply since the last call; None if no time has passed.

        Args:
            now: Present time in seconds.
            own_s: CPU time that the run's processes used since the last call.
            waiting_s: How long they were ready to run without a core; NaN if unknown.
        """
        counters = self._counters()
        busy_s, steal_s, throttled, slices = (b - a for a, b in zip(self._before, counters, strict=True))
        if (used_s := busy_s - steal_s) > 0:
            waiting_s += steal_s * min(1.0, own_s / used_s)  # the host takes cores from all programs alike
        since = CpuSeconds(now - self._at, own_s, max(0.0, busy_s - own_s), waiting_s, int(throttled), int(slices))
        self._at, self._before, self.total = now, counters, self.total.plus(since)
        return since.supply(len(self.cores))

    def _counters(self) -> tuple[float, float, int, int]:
        """Return seconds of all cores: busy, and of these given to other virtual machines; and slices by the quota."""
        each = psutil.cpu_times(percpu=True)
        times = [each[core]._asdict() for core in self.cores if core < len(each)]
        busy_s = sum(seconds for core in times for name, seconds in core.items() if name not in NOT_BUSY)
        return busy_s, sum(core.get("steal", 0.0) for core in times), *throttling()


def mean_supply(supplies: Iterable[CpuSupply]) -> CpuSupply | None:
    """Return the mean of some runs; None without any."""
    every = list(supplies)
    if not every:
        return None

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(every)

    known = [one.waiting for one in every if one.waiting is not None]
    return CpuSupply(
        cores=round(mean(one.cores for one in every)),
        own=mean(one.own for one in every),
        others=mean(one.others for one in every),
        waiting=mean(known) if len(known) == len(every) else None,
        throttled=mean(one.throttled for one in every),
    )
