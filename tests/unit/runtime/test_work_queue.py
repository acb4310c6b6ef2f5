"""The work queue: tasks are claimed once, by any free process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.contract.runtimes import running
from tests.jobs import DIE, HANG, STUCK

from paceline.errors import WorkerDied, WorkerHung
from paceline.runtime.work_queue import MOST, WorkQueue, wait


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_worker_that_is_stuck_leaves_the_work_to_the_others(kind: str) -> None:
    with running(kind) as it:
        it.arena["mode"][0] = STUCK
        it.runtime.work(20)
        by_worker = it.arena["items"].sum(1)
        assert by_worker.sum() == 20
        assert by_worker[0] <= 1


def test_a_worker_that_dies_or_hangs_in_its_work_is_noticed() -> None:
    with running("forkserver") as it:
        it.arena["mode"][0] = DIE
        with pytest.raises(WorkerDied, match=r"`work`.*SIGKILL"):
            it.runtime.work(4)
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=1.0) as it:
        it.arena["mode"][0] = HANG
        with pytest.raises(WorkerHung, match="`work`"):
            it.runtime.work(4)


@pytest.fixture
def queue() -> Iterator[WorkQueue]:
    made = WorkQueue(multiprocessing.get_context("fork"))
    yield made
    made.close()


def claim_all(queue: WorkQueue) -> list[int]:
    entries = []
    while (entry := queue.client.take()) is not None:
        entries.append(entry)
    return entries


def test_each_item_is_claimed_once_by_workers_or_driver(queue: WorkQueue) -> None:
    assert queue.take() is None
    assert queue.put(3) == {0, 1, 2}
    assert queue.take() == 0
    assert [entry & MOST for entry in claim_all(queue)] == [1, 2]
    assert queue.take() is None


def test_finished_items_are_reported_once(queue: WorkQueue) -> None:
    queue.put(4)
    entries = claim_all(queue)
    assert queue.finished() == set()
    for entry in entries[:2]:
        queue.client.finish(entry)
    assert queue.finished() == {0, 1}
    queue.client.finish(entries[2])
    assert queue.finished() == {2}


def test_late_entries_of_the_round_before_are_ignored(queue: WorkQueue) -> None:
    queue.put(2)
    late = claim_all(queue)
    queue.put(2)
    [first, second] = claim_all(queue)
    queue.client.finish(late[1])
    queue.client.finish(first)
    assert queue.finished() == {0}
    assert queue.claimed(late[1] + 1) is None
    assert queue.claimed(second + 1) == 1
    assert queue.claimed(0) is None, "no claim"


def test_as_many_items_as_a_byte_can_name_go_through(queue: WorkQueue) -> None:
    for _ in range(2):
        queue.put(MOST)
        for entry in claim_all(queue):
            queue.client.finish(entry)
        assert queue.finished() == set(range(MOST))


def test_a_worker_notices_that_the_driver_has_ended(queue: WorkQueue) -> None:
    queue._work.close()
    with pytest.raises(EOFError):
        queue.client.take()


def test_a_wait_spins_first_and_then_sleeps_with_its_affinity(queue: WorkQueue) -> None:
    slept: list[str] = []

    @contextmanager
    def affinity() -> Iterator[None]:
        slept.append("bound")
        yield
        slept.append("free")

    other, writer = os.pipe()
    poll = queue.client.poll_with(other)
    try:
        assert wait(poll, affinity(), spin_s=0.0, timeout_s=0.01) == []
        assert slept == ["bound", "free"]
        queue.put(1)
        assert [fd for fd, _ in wait(poll, affinity(), timeout_s=30.0)] == [queue.client.work.fileno()]
        claim_all(queue)
        os.write(writer, b"x")
        assert [fd for fd, _ in wait(poll, affinity(), timeout_s=30.0)] == [other]
        assert slept == ["bound", "free"], "what is ready needs no sleep"
    finally:
        os.close(other)
        os.close(writer)
