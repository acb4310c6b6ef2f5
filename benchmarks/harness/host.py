"""How much of their time the cores are slow, though nobody here uses them: neighbours on a shared host.

    python benchmarks/host.py

A virtual machine does not see them: no counter of its own says that a core shares its caches or its arithmetic with
somebody else's work. The same piece of arithmetic, again and again on every core at once, does: it takes longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

PIECE = 6_000
"""Rounds of the piece: about a quarter of a millisecond."""
SLOW = 1.25
"""Times the piece's usual duration."""


def slow_percent(seconds: float = 1.5) -> float:
    """Of the cores' time, how much went into pieces that took unusually long."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1]
    command = [sys.executable, "-S", __file__, str(seconds)]
    probes = [subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    shares = [float(probe.communicate()[0]) for probe in probes]
    return round(100.0 * sum(shares) / len(shares), 1)


def _slow_share(seconds: float, core: int) -> float:
    if core >= 0:
        os.sched_setaffinity(0, [core])
    took, end = [], perf_counter() + seconds
    while (began := perf_counter()) < end:
        total = 0
        for i in range(PIECE):
            total += i * i
        took.append(perf_counter() - began)
    usual = sorted(took)[len(took) // 20]  # the fastest may have had luck with the clock
    return sum(one for one in took if one > SLOW * usual) / sum(took)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(_slow_share(float(sys.argv[1]), int(sys.argv[2])))
    else:
        print(f"slow for {slow_percent():.0f} % of the time")
