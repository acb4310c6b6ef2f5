"""Start methods that cannot work are refused before any worker starts."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.runtime.start_method import check_start_method


def test_a_method_of_another_platform_is_refused_with_those_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn", "fork"])
    with pytest.raises(ConfigError, match=r"start_method='forkserver': must be one that .* \(spawn, fork\)"):
        check_start_method("forkserver")


def test_fork_is_refused_once_cuda_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="CUDA is initialised here and does not survive a fork"):
        check_start_method("fork")


@pytest.mark.parametrize(("threads", "warned"), [(1, False), (3, True)])
def test_fork_warns_of_threads_that_may_hold_locks(threads: int, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_start_method("fork")
    assert [f"with {threads} threads alive" in str(one.message) for one in caught] == [True] * warned


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_other_methods_start_clean_processes(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr(threading, "active_count", lambda: 9)
    check_start_method(method)
