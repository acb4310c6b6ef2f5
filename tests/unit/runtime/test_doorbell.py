"""Doorbells: low-latency wake-ups of worker processes, for each start method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.jobs import GROUPS, Answering, fields

from paceline.errors import WorkerDied, WorkerError, WorkerHung
from paceline.memory.shared import Arena
from paceline.runtime.doorbell import BUFFER_BYTES, SKIPPED_SPINS, DriverDoorbells, Spinner, SpinTimes, doorbell_fields
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import run_all, serve
from paceline.system import wakeups

KINDS = ("forkserver", "fork")
WORKERS = 2


@contextmanager
def serving(kind: str, **options: Any) -> Iterator[tuple[ProcessRuntime[Answering], DriverDoorbells]]:
    arena = Arena.create([*fields(WORKERS), *doorbell_fields(WORKERS)])
    runtime: ProcessRuntime[Answering] | None = None
    try:
        method: Any = kind
        runtime = ProcessRuntime(
            Answering, arena, GROUPS, WORKERS, start_method=method, doorbells=True, unit="envs", **options
        )
        runtime.submit_all(serve)
        yield runtime, runtime.doorbells
    finally:
        if runtime is not None:
            runtime.close()
        arena.close()


def ask(doorbells: DriverDoorbells, payload: bytes) -> list[bytes]:
    workers = range(len(doorbells.notifications))
    for worker in workers:
        doorbells.notify(worker, payload)
    assert doorbells.wait(workers, at_least=len(workers), timeout_s=30.0, doing="step") == list(workers)
    return [doorbells.payload(worker) for worker in workers]


def ring_the_first_for_ever(doorbells: DriverDoorbells) -> None:
    while True:
        if doorbells.wait([0, 1], at_least=1, timeout_s=10.0, doing="step") == [0]:
            doorbells.notify(0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_notification_is_answered_once(kind: str) -> None:
    with serving(kind) as (runtime, doorbells):
        for _ in range(50):
            ask(doorbells, b"")
        assert doorbells.notifications == [50] * len(doorbells.notifications)
        doorbells.rest()
        assert run_all(runtime, Answering.answers) == doorbells.notifications


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_of_any_size_arrive_once(kind: str) -> None:
    with serving(kind) as (_, doorbells):
        for size in (0, 3, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES, 2, 0):
            payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert ask(doorbells, payload) == [payload[::-1]] * len(doorbells.notifications)


def test_long_payload_does_not_make_the_driver_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = b"ab" * BUFFER_BYTES
    with serving("forkserver") as (_, doorbells):
        doorbells.notify(0, payload)
        doorbells.notify(1, b"!hold")
        assert doorbells.wait([0], at_least=1, timeout_s=30.0, doing="step") == [0]
        looks: list[float] = []
        real = wakeups.DescriptorWatch.wait
        monkeypatch.setattr(wakeups.DescriptorWatch, "wait", lambda self, s: looks.append(s) or real(self, s))  # type: ignore[func-returns-value]
        assert doorbells.wait([0, 1], at_least=2, timeout_s=0.1, doing="step") == [0]
        assert len(looks) < 10
        assert doorbells.payload(0) == payload[::-1]
        doorbells.notify(0, b"!free")
        assert doorbells.wait([0, 1], at_least=2, timeout_s=30.0, doing="step") == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_executed_between_two_serve_calls(kind: str) -> None:
    with serving(kind) as (runtime, doorbells):
        for _ in range(3):
            ask(doorbells, b"ab")
            doorbells.rest()
            assert run_all(runtime, Answering.echo, 7) == [(7,)] * len(doorbells.notifications)
            runtime.submit_all(serve)


def test_first_replies_are_returned_before_the_others_arrive() -> None:
    with serving("forkserver") as (_, doorbells):
        doorbells.notify(0, b"!hold")
        doorbells.notify(1, b"quick")
        assert doorbells.wait([0, 1], at_least=1, timeout_s=30.0, doing="step") == [1]
        assert doorbells.payload(1) == b"kciuq"
        assert doorbells.wait([0], at_least=1, timeout_s=0.0, doing="step") == []
        doorbells.notify(1, b"!free")
        assert doorbells.wait([0, 1], at_least=2, timeout_s=30.0, doing="step") == [0, 1]


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"!raise", WorkerError, r"worker 1 \(pid \d+, envs 3-4\) failed in `step`: ValueError: asked to"),
        (b"!die", WorkerDied, r"worker 1 .* ended in `step`: killed by SIGKILL"),
        (b"!hang", WorkerHung, r"worker 1 .*no sign of life in `step`"),
    ],
)
def test_a_worker_that_raises_dies_or_hangs_is_reported(payload: bytes, error: type[WorkerError], text: str) -> None:
    with serving("forkserver", step_timeout_s=0.2) as (_, doorbells):
        ask(doorbells, b"")
        doorbells.notify(0)
        doorbells.notify(1, payload)
        with pytest.raises(error, match=text):
            ring_the_first_for_ever(doorbells)


def test_a_worker_that_is_replaced_serves_again() -> None:
    with serving("forkserver") as (runtime, doorbells):
        ask(doorbells, b"")
        doorbells.notify(1, b"!die")
        with pytest.raises(WorkerDied) as death:
            doorbells.wait([1], at_least=1, timeout_s=10.0, doing="step")
        assert runtime.respawn(death.value.worker, Answering.echo, 1) == (1,)
        runtime.submit(death.value.worker, serve)
        assert ask(doorbells, b"ab") == [b"ba"] * WORKERS


def test_spinning_saves_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpinTimes, "for_cores", classmethod(lambda cls, workers, cores: cls(5.0, 5.0)))
    sent, real = [], wakeups.EventSignal.set

    def counted(signal: wakeups.EventSignal) -> None:
        sent.append(signal)
        real(signal)

    monkeypatch.setattr(wakeups.EventSignal, "set", counted)
    with serving("forkserver") as (_, doorbells):
        for _ in range(20):
            ask(doorbells, b"")
        assert len(sent) < sum(doorbells.notifications)


def test_no_process_spins_on_a_core_that_another_needs() -> None:
    alone, shared, scarce = SpinTimes.for_cores(2, 3), SpinTimes.for_cores(2, 2), SpinTimes.for_cores(3, 2)
    assert min(alone.worker_s, alone.driver_s, alone.last_s) > 0
    assert min(shared.worker_s, shared.last_s) > 0, "a worker that has replied does not spin on the driver's core"
    assert shared.driver_s == 0
    assert scarce == SpinTimes()


def test_spinning_for_the_last_answer_finds_the_answer_or_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpinTimes, "for_cores", classmethod(lambda cls, workers, cores: cls(0.0, 0.0, 0.2)))
    with serving("forkserver") as (_, doorbells):
        for _ in range(20):
            assert ask(doorbells, b"ab") == [b"ba"] * WORKERS
        for worker in range(WORKERS - 1):
            doorbells.notify(worker)
        doorbells.notify(WORKERS - 1, b"!die")
        with pytest.raises(WorkerDied):
            doorbells.wait(range(WORKERS), at_least=WORKERS, timeout_s=10.0, doing="step")


def test_fruitless_spinning_is_followed_by_blocking_waits() -> None:
    spinner = Spinner(1e-9)
    looked = []
    for _ in range(2 * SKIPPED_SPINS + 2):
        looked.append(spinner.due())
        if looked[-1]:
            spinner.until(lambda: False)
    assert looked == [True, *[False] * SKIPPED_SPINS] * 2
    spinner.due()
    spinner.until(lambda: True)
    assert spinner.due(), "the last spin succeeded, so it spins again"
    assert not Spinner(0.0).due()


def test_doorbells_work_with_pipes_instead_of_eventfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.doorbell.new_signal", wakeups.PipeSignal)
    with serving("forkserver") as (_, doorbells):
        for _ in range(3):
            assert ask(doorbells, b"ab") == [b"ba"] * WORKERS
