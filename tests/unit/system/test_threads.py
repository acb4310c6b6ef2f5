"""Core budget, pinned cores and thread limits."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import ConfigError
from paceline.system.threads import blas_threads, core_budget, limit, pinned_cores


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.5, 2), (0.5, 1), (64.0, 4)])
def test_the_core_budget_follows_affinity_and_quota(
    quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.system.limits.affinity", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("paceline.system.limits.cpu_quota", lambda: quota)
    assert core_budget() == cores


def test_pinned_cores_default_to_all_and_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.system.threads.affinity", lambda: [2, 3])
    assert pinned_cores([]) == [2, 3]
    assert pinned_cores([3]) == [3]
    with pytest.raises(ConfigError, match=r"pin_cores: cores \[0, 7\] are outside .* \(\[2, 3\]\)"):
        pinned_cores([7, 3, 0])


def test_limits_apply_to_libraries_that_are_already_loaded() -> None:
    before = torch.get_num_threads()
    try:
        limit(before + 1)
        assert torch.get_num_threads() == before + 1
        limit(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("pools", "threads"), [([], 1), ([("blas", 3), ("openmp", 8)], 3), ([("blas", 2), ("blas", 4)], 4)]
)
def test_blas_threads_are_those_of_the_largest_blas_pool(
    pools: list[tuple[str, int]], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = [{"user_api": api, "num_threads": count} for api, count in pools]
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: info)
    assert blas_threads() == threads
