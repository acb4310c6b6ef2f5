from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.measure import system
from paceline.measure.system import SystemSampler, affinity, cpu_quota, memory_limit_mb, system_info


def test_info_names_machine_and_versions_and_is_json() -> None:
    info = json.loads(json.dumps(system_info()))
    assert info["cpu"]
    assert info["cores"]["affinity"] == affinity()
    assert info["cores"]["logical"] >= len(info["cores"]["affinity"]) >= 1
    assert info["memory_mb"] > 0
    assert info["versions"]["torch"]
    assert info["versions"]["numpy"]


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of control groups, and a process that is told to be in one."""
    monkeypatch.setattr(system, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(system, "PROC", tmp_path / "proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "cgroup"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_is_the_tightest_above_us(cgroup: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc" / "self" / "cgroup", "0::/pod/box\n")
    put(cgroup / "pod" / "box" / "cpu.max", "max 100000\n")
    put(cgroup / "pod" / "cpu.max", "150000 100000\n")
    put(cgroup / "cpu.max", "400000 100000\n")
    put(cgroup / "pod" / "memory.max", f"{512 << 20}\n")
    put(cgroup / "pod" / "box" / "memory.max", "max\n")
    assert cpu_quota() == 1.5
    assert memory_limit_mb() == 512


def test_quota_in_a_container_that_sees_only_the_top(cgroup: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc" / "self" / "cgroup", "0::/docker/0123\n")
    put(cgroup / "cpu.max", "200000 100000\n")
    assert cpu_quota() == 2.0


def test_quota_of_the_older_interface(cgroup: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc" / "self" / "cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/a\n")
    put(cgroup / "cpu,cpuacct" / "a" / "cpu.cfs_quota_us", "50000\n")
    put(cgroup / "cpu,cpuacct" / "a" / "cpu.cfs_period_us", "100000\n")
    put(cgroup / "memory" / "a" / "memory.limit_in_bytes", "9223372036854771712\n")
    assert cpu_quota() == 0.5
    assert memory_limit_mb() is None


@pytest.mark.parametrize("text", [None, "0::/\n", "rubbish\n"])
def test_no_quota(cgroup: Path, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        put(tmp_path / "proc" / "self" / "cgroup", text)
    put(cgroup / "cpu.max", "max 100000\n" if text != "rubbish\n" else "rubbish")
    assert cpu_quota() is None


SHARING = """
import mmap, os, sys, time
from paceline.measure.system import tree_memory_mb
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
    assert usage.processes >= 2
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
    assert usage.scalars() == {"cpu_percent": usage.cpu_percent, "rss_mb": usage.memory_mb}


def test_cpu_is_looked_at_more_often_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def slow(root: object) -> list[object]:
        nonlocal now
        now += 0.02  # so long that the next such look is 10 s away
        return [root]

    monkeypatch.setattr(system, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(system, "_tree", slow)
    sampler = SystemSampler(every_s=0.01)
    first = sampler.sample()
    monkeypatch.setattr(system, "_tree", None)
    now += 0.009
    assert sampler.sample() is first
    now += 0.002
    usage = sampler.sample()
    assert usage is not first
    assert usage.memory_mb == first.memory_mb
    assert usage.each[os.getpid()].cpu_percent is not None


def test_sampler_mostly_answers_from_memory() -> None:
    sampler = SystemSampler()
    assert sampler.sample() is sampler.sample()
    assert sampler.sample(force=True) is sampler.sample()
