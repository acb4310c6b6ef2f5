"""CPU time that a run got: who had the cores, and when that is said."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from paceline.measure import cpu
from paceline.measure.cpu import CpuMeter, CpuSeconds, CpuSupply, mean_supply, waited_s


def supply(**changes: Any) -> CpuSupply:
    return CpuSupply(**{"cores": 2, "own": 0.5, "others": 1.5, "waiting": 1.0, **changes})


def test_a_run_that_others_kept_from_the_cores_is_short_of_cpu() -> None:
    assert supply().shortage() == (
        "it got 0.5 of the 1.5 cores that it asked for, "
        "while other programs or virtual machines used 75% of the 2 cores"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"waiting": 0.0},  # it had nothing to do: its envs wait for a simulator
        {"own": 1.9, "others": 0.05, "waiting": 2.0},  # its own workers had the cores
        {"own": 1.5, "others": 0.5, "waiting": 0.05},
        {"own": 1.7, "others": 0.24, "waiting": 1.0},  # a browser: the shares of the phases still tell the limit
        {"own": 0.5, "others": 0.5, "waiting": None},  # a core was free
    ],
)
def test_a_run_that_got_what_it_asked_for_is_not_short(changes: Any) -> None:
    assert supply(**changes).shortage() == ""


def test_it_asked_for_no_more_than_others_had() -> None:
    assert supply(own=1.0, others=0.6, waiting=3.0).missing == 0.6
    assert supply(waiting=None).missing == 1.5, "all cores are full, though nothing tells how long processes wait"


def test_a_quota_is_named() -> None:
    stopped = supply(own=1.0, others=0.0, throttled=0.63)
    assert stopped.shortage() == "the CPU quota of its control group (cgroup) stopped it in 63% of the time slices"


def test_supplies_are_per_second_and_their_mean_is_a_supply() -> None:
    whole = CpuSeconds(1.0, 0.5, 1.0, 0.25, 1, 10).plus(CpuSeconds(3.0, 0.5, 2.0, 0.75, 3, 10))
    assert whole.supply(2) == CpuSupply(cores=2, own=0.25, others=0.75, waiting=0.25, throttled=0.2)
    assert CpuSeconds().supply(2) is None
    assert CpuSeconds(1.0, 0.5, 1.0, math.nan).supply(2) == CpuSupply(cores=2, own=0.5, others=1.0)
    assert mean_supply([]) is None
    both = mean_supply([supply(own=0.5), supply(own=1.5, waiting=None)])
    assert both is not None
    assert (both.own, both.others, both.waiting) == (1.0, 1.5, None)


def test_the_meter_divides_the_time_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"user": 1.0, "idle": 5.0, "iowait": 1.0, "steal": 0.0, "guest": 1.0}
    each = [SimpleNamespace(_asdict=lambda: dict(seconds)), SimpleNamespace(_asdict=lambda: dict(seconds))]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: each)
    monkeypatch.setattr(cpu, "affinity", lambda: [0, 1, 7])
    meter = CpuMeter(10.0)
    seconds |= {"user": 3.0, "idle": 9.0, "iowait": 9.0, "steal": 1.0, "guest": 9.0}
    found = meter(14.0, own_s=1.0, waiting_s=0.5)
    # Both cores were busy for 2 s and stolen for 1 s; a quarter of what ran was the run's, and so of what was stolen.
    assert found == CpuSupply(cores=3, own=0.25, others=1.25, waiting=0.25)
    assert meter.total.elapsed_s == 4.0


def test_time_without_a_core_is_known_or_not_a_number(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("5000000000 1500000000 9\n")
    monkeypatch.setattr(cpu, "PROC", tmp_path)
    assert waited_s(7) == 1.5
    assert math.isnan(waited_s(os.getpid()))
