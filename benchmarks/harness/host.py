"""Measure how much other virtual machines on the same host slow down the cores of this one.

    python -m benchmarks.harness.host

No counter inside a virtual machine shows that a core shares its caches or execution units with another tenant. A
fixed piece of arithmetic, repeated on every core at once, shows it: it takes longer than usual. Run it while this
machine is idle. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

LOOP_LENGTH = 6_000
"""Iterations of the timed loop: about a quarter of a millisecond."""
SLOW = 1.25
"""A repetition counts as slow beyond this multiple of the usual duration."""


def slow_percent(seconds: float = 1.5) -> float:
    """Share of the time of all cores that slow repetitions of the loop took, in percent. Blocks for `seconds`."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1]
    command = [sys.executable, "-S", __file__, str(seconds)]
    probes = [subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    shares = [float(probe.communicate()[0]) for probe in probes]
    return round(100.0 * sum(shares) / len(shares), 1)


def _slow_share(seconds: float, core: int) -> float:
    if core >= 0:
        os.sched_setaffinity(0, [core])
    durations, end = [], perf_counter() + seconds
    while (began := perf_counter()) < end:
        total = 0
        for i in range(LOOP_LENGTH):
            total += i * i
        durations.append(perf_counter() - began)
    usual = sorted(durations)[len(durations) // 20]  # the 5 % quantile: the minimum may be a clock error
    return sum(one for one in durations if one > SLOW * usual) / sum(durations)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(_slow_share(float(sys.argv[1]), int(sys.argv[2])))
    else:
        print(f"cores were slow for {slow_percent():.0f} % of the time")
