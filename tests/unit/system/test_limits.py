from __future__ import annotations

from pathlib import Path

import pytest

from paceline.system import limits
from paceline.system.limits import allowed_cores, cpu_quota, memory_limit_mb, throttling


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of control groups, and a process that is told to be in one."""
    monkeypatch.setattr(limits, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "PROC", tmp_path / "proc")
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


def test_throttling_is_of_the_group_that_was_stopped_most_often(cgroup: Path, tmp_path: Path) -> None:
    assert throttling() == (0, 0)
    put(tmp_path / "proc" / "self" / "cgroup", "0::/pod/box\n")
    put(cgroup / "pod" / "box" / "cpu.stat", "usage_usec 5\nnr_periods 90\nnr_throttled 7\nthrottled_usec 3\n")
    put(cgroup / "pod" / "cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 8\n")
    put(cgroup / "cpu.stat", "usage_usec 5\n")  # the top has no quota
    assert throttling() == (8, 100)


def test_quota_in_a_container_that_sees_only_the_top(cgroup: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc" / "self" / "cgroup", "0::/docker/0123\n")
    put(cgroup / "cpu.max", "200000 100000\n")
    assert cpu_quota() == 2.0


def test_quota_of_cgroup_v1(cgroup: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc" / "self" / "cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/a\n")
    put(cgroup / "cpu,cpuacct" / "a" / "cpu.cfs_quota_us", "50000\n")
    put(cgroup / "cpu,cpuacct" / "a" / "cpu.cfs_period_us", "100000\n")
    put(cgroup / "memory" / "a" / "memory.limit_in_bytes", "9223372036854771712\n")
    assert cpu_quota() == 0.5
    assert memory_limit_mb() is None


@pytest.mark.parametrize("text", [None, "0::/\n", "rubbish\n"])
def test_without_a_control_group_there_is_no_quota(cgroup: Path, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        put(tmp_path / "proc" / "self" / "cgroup", text)
    put(cgroup / "cpu.max", "max 100000\n" if text != "rubbish\n" else "rubbish")
    assert cpu_quota() is None


def test_the_allowed_cores_are_at_most_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "affinity", lambda: [2, 3, 4, 5])
    for quota, cores in ((None, [2, 3, 4, 5]), (2.5, [2, 3]), (0.5, [2]), (16.0, [2, 3, 4, 5])):
        monkeypatch.setattr(limits, "cpu_quota", lambda quota=quota: quota)
        assert allowed_cores() == cores
