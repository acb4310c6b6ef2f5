"""Wake-up signals between processes, and the wait on several descriptors."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from time import perf_counter

import pytest

from paceline.system.wakeups import DescriptorWatch, EventSignal, PipeSignal, Signal, descriptor, new_signal

KINDS = [PipeSignal, *([EventSignal] if hasattr(os, "eventfd") else [])]


@pytest.fixture(params=KINDS)
def signal(request: pytest.FixtureRequest) -> Iterator[Signal]:
    made: Signal = request.param()
    yield made
    made.close()
    made.close()  # idempotent


def is_set(signal: Signal) -> bool:
    return DescriptorWatch([signal.waitable]).wait(0.0) == {descriptor(signal.waitable)}


def test_a_signal_is_readable_from_set_until_clear(signal: Signal) -> None:
    assert not is_set(signal)
    signal.set()
    assert is_set(signal)
    assert is_set(signal), "waiting does not clear it"
    signal.clear()
    assert not is_set(signal)


def test_one_clear_is_enough_for_several_sets_and_clear_without_set_returns(signal: Signal) -> None:
    signal.clear()
    for _ in range(3):
        signal.set()
    signal.clear()
    assert not is_set(signal)


def test_a_signal_of_another_process_ends_a_wait(signal: Signal) -> None:
    process = multiprocessing.get_context("fork").Process(target=signal.set)
    watch = DescriptorWatch([signal.waitable])
    began = perf_counter()
    process.start()
    assert watch.wait(30.0) == {descriptor(signal.waitable)}
    assert perf_counter() - began < 25.0
    process.join()


def test_a_watch_returns_only_descriptors_that_are_ready() -> None:
    signals = [new_signal() for _ in range(3)]
    watch = DescriptorWatch([each.waitable for each in signals])
    try:
        began = perf_counter()
        assert watch.wait(0.05) == set()
        assert perf_counter() - began >= 0.04, "it waits for the timeout"
        signals[0].set()
        signals[2].set()
        assert watch.wait(1.0) == {descriptor(signals[0].waitable), descriptor(signals[2].waitable)}
    finally:
        for each in signals:
            each.close()


def test_without_eventfd_a_pipe_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)
    signal = new_signal()
    assert isinstance(signal, PipeSignal)
    signal.close()


def test_the_descriptor_of_a_number_is_the_number_itself() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    assert descriptor(5) == 5
    assert descriptor(reader) == reader.fileno()
    reader.close()
    writer.close()
