from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from paceline.measure import machine
from paceline.measure.machine import SystemSampler, Usage, system_info
from paceline.system.limits import affinity


def test_info_names_machine_and_versions_and_is_json() -> None:
    info = json.loads(json.dumps(system_info()))
    assert info["cpu"]
    assert info["cores"]["affinity"] == affinity()
    assert info["cores"]["logical"] >= len(info["cores"]["affinity"]) >= 1
    assert info["memory_mb"] > 0
    assert info["versions"]["torch"]
    assert info["versions"]["numpy"]


SHARING = """
import mmap, os, sys, time
from paceline.measure.machine import tree_memory_mb
shared = mmap.mmap(-1, 64 << 20)
shared.write(b"x" * (64 << 20))
before = tree_memory_mb()
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
try:
    print(before, tree_memory_mb())
finally:
    os.kill(child, 9)
    os.waitpid(child, 0)
"""


@pytest.mark.alone
def test_tree_counts_shared_pages_once() -> None:
    done = subprocess.run([sys.executable, "-c", SHARING], capture_output=True, text=True, timeout=60, check=True)
    before, after = map(float, done.stdout.split())
    assert before > 64
    assert after - before < 32  # the child's resident set is at least 64 more


@pytest.mark.alone
def test_sampler_sees_a_busy_child_and_keeps_the_peak() -> None:
    sampler = SystemSampler(every_s=0.0)
    code = "x = bytearray(80 << 20); print(flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        sampler.sample(force=True)
        time.sleep(0.3)
        usage = sampler.sample(force=True)
    finally:
        child.kill()
        child.communicate()
    assert len(usage.each) >= 2
    own = usage.each[child.pid]
    assert own.cpu_percent is not None
    assert 10.0 < own.cpu_percent < 150.0
    assert own.memory_mb > 80
    assert sum(one.memory_mb for one in usage.each.values()) == pytest.approx(usage.memory_mb)
    assert usage.cpu_percent > 10.0
    peak = sampler.peak_memory_mb
    after = sampler.sample(force=True)
    assert after.memory_mb < peak - 60
    assert sampler.peak_memory_mb == peak
    assert usage.supply is not None
    assert usage.cpu_percent == 100 * usage.supply.own
    assert {"cpu_percent", "cpu_others_percent", "pss_mb"} <= set(usage.scalars())
    assert set(Usage(1.0, 2.0).scalars()) == {"cpu_percent", "pss_mb"}


def test_the_supply_counts_every_sample_from_the_first_on() -> None:
    sampler = SystemSampler(every_s=0.0)
    assert sampler.sample(force=True).supply is not None
    sum(range(3_000_000))
    sampler.sample(force=True)
    whole = sampler.supply()
    assert whole is not None
    assert whole.own > 0
    assert whole.cores == len(affinity())


def test_cpu_is_sampled_more_often_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def slow(root: object) -> list[object]:
        nonlocal now
        now += 0.02  # so long that the next such look is 10 s away
        return [root]

    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(machine, "_tree", slow)
    sampler = SystemSampler(every_s=0.01)
    first = sampler.sample()
    monkeypatch.setattr(machine, "_tree", None)
    now += 0.009
    assert sampler.sample() is first
    now += 0.002
    usage = sampler.sample()
    assert usage is not first
    assert usage.memory_mb == first.memory_mb
    assert usage.each[os.getpid()].cpu_percent is not None


def test_most_samples_are_returned_from_the_cache() -> None:
    sampler = SystemSampler()
    assert sampler.sample() is sampler.sample()
    assert sampler.sample(force=True) is sampler.sample()


def test_memory_on_other_machines_is_added() -> None:
    sampler = SystemSampler()
    here_mb = sampler.peak_memory_mb
    sampler.elsewhere_mb = 5000.0
    usage = sampler.sample(force=True)
    assert usage.memory_mb == pytest.approx(sum(usage.each_mb.values()) + 5000.0)
    assert sampler.peak_memory_mb > 5000.0 > here_mb
