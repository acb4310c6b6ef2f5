"""The contract of runtimes: one suite for inline, and for worker processes by each start method."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import psutil
import pytest
from tests.contract.runtimes import KINDS, SLOW_SPAWN, WORKERS, Running, results, running, taken
from tests.jobs import RAISE, Recorder

from paceline.errors import WorkerError
from paceline.memory.shared import Arena
from paceline.runtime.protocol import Reply, Runtime, run_all


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Running]:
    """One runtime of each kind, shared by the tests that do not break it."""
    with running(request.param) as it:
        yield it


def test_results_come_in_worker_order_not_in_reply_order(shared: Running) -> None:
    assert run_all(shared.runtime, Recorder.slowest_first) == list(range(shared.jobs))
    assert run_all(shared.runtime, Recorder.echo, 1, {"a": [2]}) == [(1, {"a": [2]})] * shared.jobs


def test_calls_run_in_order_on_all_workers_before_run_all_returns(shared: Running) -> None:
    for number in range(4):
        done = run_all(shared.runtime, Recorder.note, 10 + number)
        assert done == [number + 1] * shared.jobs
        assert (shared.arena["log"][:, number] == 10 + number).all(), "the workers have written to shared memory"


def test_work_is_computed_between_submit_and_wait(shared: Running) -> None:
    shared.arena["items"][...] = 0
    shared.arena["mode"][0] = 0
    replies = shared.runtime.submit_all(Recorder.slowest_first)
    shared.runtime.work(7)
    assert shared.arena["items"].sum(0)[:7].tolist() == [1] * 7
    assert results(shared.runtime, replies) == list(range(shared.jobs))


def _work_and_finish(runtime: Runtime[Recorder], replies: list[Reply[None]]) -> None:
    for _ in range(1000):
        runtime.work(4)
    runtime.wait(replies, all=True)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_failure_between_submit_and_wait_is_raised_by_work_or_wait(how: str) -> None:
    with running("forkserver") as it:
        replies = it.runtime.submit_all(Recorder.fail, 0, how)
        with pytest.raises(WorkerError, match="`fail`"):
            _work_and_finish(it.runtime, replies)


@pytest.mark.parametrize("count", [1, 2, 7, 127])
def test_every_item_is_done_once_by_any_free_worker(count: int, shared: Running) -> None:
    shared.arena["items"][...] = 0
    shared.arena["mode"][0] = 0
    for round_number in (1, 2):
        shared.runtime.work(count)
        done = shared.arena["items"].sum(0)
        assert done[:count].tolist() == [round_number] * count
        assert not done[count:].any()
    assert run_all(shared.runtime, Recorder.echo, 3) == [(3,)] * shared.jobs, "calls still arrive"


@pytest.mark.parametrize("kind", ["inline", "forkserver", SLOW_SPAWN, "fork"])
def test_work_that_raises_is_an_error_with_its_traceback(kind: str) -> None:
    with running(kind) as it:
        it.arena["mode"][0] = RAISE
        with pytest.raises((WorkerError, RuntimeError), match="item 1 failed"):
            it.runtime.work(4)


def test_submitted_calls_run_in_order_and_replies_come_first_ready(shared: Running) -> None:
    pending = [
        shared.runtime.submit(worker, Recorder.echo, worker, number)
        for number in range(3)
        for worker in range(shared.jobs)
    ]
    answers: list[Any] = []
    while pending:
        answers += taken(shared.runtime, pending, 5.0)
    for worker in range(shared.jobs):
        assert [answer for who, answer in answers if who == worker] == [(worker, number) for number in range(3)]
    assert shared.runtime.wait(pending, all=False, timeout_s=0.0) == []


def test_waiting_for_a_later_reply_receives_the_earlier_ones_of_its_worker(shared: Running) -> None:
    first, second = (shared.runtime.submit(0, Recorder.echo, number) for number in (1, 2))
    with pytest.raises(RuntimeError, match="worker 0, `echo`: no result yet"):
        first.result()
    assert results(shared.runtime, [second]) == [(2,)]
    assert first.result() == (1,)
    assert shared.runtime.wait([first, second], all=False) == [first, second], "returns at once, since both are done"


class _Idle:
    """A job that can do nothing."""

    def __init__(self, arena: Arena, share: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["inline", "fork"])
def test_a_job_that_computes_no_gradients_says_so(kind: str) -> None:
    with running(kind, program=_Idle) as it, pytest.raises((TypeError, WorkerError), match="cannot compute gradients"):  # type: ignore[arg-type]
        it.runtime.work(2)


def test_groups_are_divided_whole_and_in_order(shared: Running) -> None:
    expected = [(0, 0, 5)] if shared.kind == "inline" else [(0, 0, 3), (1, 3, 2)]
    assert run_all(shared.runtime, Recorder.share) == expected


def test_jobs_run_in_other_processes_except_inline(shared: Running) -> None:
    pids = run_all(shared.runtime, Recorder.pid)
    me = psutil.Process().pid
    if shared.kind == "inline":
        assert pids == [me]
        assert shared.runtime.num_workers == 0
    else:
        assert len({me, *pids}) == WORKERS + 1
        assert shared.runtime.num_workers == WORKERS
        assert shared.runtime.pids() == pids


@pytest.mark.parametrize("kind", KINDS)
def test_closing_ends_every_worker_closes_every_job_and_may_be_repeated(kind: str) -> None:
    with running(kind) as it:
        pids = run_all(it.runtime, Recorder.pid)
        closed = it.arena["closed"]
        began = perf_counter()
        it.runtime.close()
        it.runtime.close()
        assert perf_counter() - began < 5.0
        assert closed.tolist() == [1] * it.jobs
        if kind != "inline":
            assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_worker_computes_with_one_thread(shared: Running) -> None:
    if shared.kind != "inline":  # inline has the caller's own
        assert run_all(shared.runtime, Recorder.threads) == [(1, 1, "1")] * WORKERS
