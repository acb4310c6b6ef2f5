"""Descriptors are passed to new processes, and the soft limit of open files is raised as far as workers need."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource

import pytest

from paceline.errors import ConfigError
from paceline.system.descriptors import OwnedDescriptor, make_room


def write(there: OwnedDescriptor) -> None:
    os.write(there._fd, b"!")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_descriptor_can_be_passed_to_a_new_process_and_closed_twice(method: str) -> None:
    end, fd = os.pipe()
    sent = OwnedDescriptor(fd)
    process = multiprocessing.get_context(method).Process(target=write, args=(sent,))  # type: ignore[attr-defined]
    process.start()
    process.join()
    sent.close()
    sent.close()
    assert os.read(end, 2) == b"!"
    os.close(end)
    with pytest.raises(RuntimeError, match="should only be shared"):
        pickle.dumps(sent)


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """Pretend these, and keep what they are set to."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    return asked


def test_the_limit_of_open_files_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = limits(monkeypatch, 64, 4096)
    make_room(64)
    [(soft, hard)] = asked
    assert 64 * 5 < soft < 1000
    assert hard == 4096
    asked.clear()
    limits(monkeypatch, 100_000, 100_000)
    make_room(64)
    assert not asked


def test_a_limit_that_cannot_be_raised_is_said_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 256, 256)
    with pytest.raises(
        ConfigError, match=r"num_workers=64: needs about \d+ file descriptors \(hard limit 256\).*ulimit -n \d+"
    ) as caught:
        make_room(64)
    fit = int(str(caught.value).rsplit("--num-workers ", 1)[1].rstrip("."))
    make_room(fit)
    assert caught.value.exit_code == 2


def test_without_a_soft_limit_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = limits(monkeypatch, resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    make_room(10_000)
    assert not asked
