"""One suite for every runtime: inline, and worker processes by each start method."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs import DIE, GROUPS, HANG, RAISE, STUCK, OneFails, Recorder, TextlessError, fields

from paceline.envs.fault import OddError
from paceline.errors import ConfigError, EnvError, WorkerDied, WorkerError, WorkerHung
from paceline.memory.shared import Arena
from paceline.memory.worker_status import CLAIM
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.pickled_program import pack
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Program, Reply, Runtime, run_all, shares
from paceline.runtime.worker_handle import describe_exit
from paceline.system import threads
from paceline.system.limits import affinity

KINDS = ("inline", "forkserver", "spawn", "fork")
SLOW_SPAWN = pytest.param("spawn", marks=pytest.mark.slow)
"""Every spawned worker takes seconds: by default one runtime of them is shared, and one is closed."""
WORKERS = 2
R = TypeVar("R")


@dataclass
class Running:
    kind: str
    runtime: Runtime[Recorder]
    arena: Arena

    @property
    def jobs(self) -> int:
        return max(1, self.runtime.num_workers)


@contextmanager
def running(
    kind: str, workers: int = WORKERS, program: Program[Recorder] = Recorder, **options: Any
) -> Iterator[Running]:
    workers = 0 if kind == "inline" else workers
    arena = Arena.create(fields(workers))
    runtime: Runtime[Recorder] | None = None
    try:
        if kind == "inline":
            runtime = InlineRuntime(program, arena, GROUPS)
        else:
            method: Any = kind
            runtime = ProcessRuntime(program, arena, GROUPS, workers, start_method=method, **options)
        yield Running(kind, runtime, arena)
    finally:
        if runtime is not None:
            runtime.close()
        arena.close()


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Running]:
    """One runtime of each kind, for all tests that do it no harm."""
    with running(request.param) as it:
        yield it


def test_results_come_in_worker_order_not_in_reply_order(shared: Running) -> None:
    assert run_all(shared.runtime, Recorder.slowest_first) == list(range(shared.jobs))
    assert run_all(shared.runtime, Recorder.echo, 1, {"a": [2]}) == [(1, {"a": [2]})] * shared.jobs


def test_commands_are_done_in_order_and_by_all_before_run_returns(shared: Running) -> None:
    for number in range(4):
        done = run_all(shared.runtime, Recorder.note, 10 + number)
        assert done == [number + 1] * shared.jobs
        assert (shared.arena["log"][:, number] == 10 + number).all(), "written to shared memory by now"


def test_work_is_done_between_the_halves_of_a_command(shared: Running) -> None:
    shared.arena["items"][...] = 0
    shared.arena["mode"][0] = 0
    replies = shared.runtime.submit_all(Recorder.slowest_first)
    shared.runtime.work(7)
    assert shared.arena["items"].sum(0)[:7].tolist() == [1] * 7
    assert results(shared.runtime, replies) == list(range(shared.jobs))


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")
@pytest.mark.parametrize("kind", ["inline", "forkserver", "fork"])
def test_workers_use_batch_scheduling_and_the_driver_keeps_its_policy(kind: str) -> None:
    before = os.sched_getscheduler(0)
    with running(kind) as it:
        policies = run_all(it.runtime, Recorder.scheduler)
        driver = os.sched_getscheduler(0)
    assert driver == before
    if kind == "inline":
        assert policies == [before], "the job runs in the driver's process, whose policy does not change"
    elif before == os.SCHED_OTHER:
        assert policies == [os.SCHED_BATCH] * WORKERS, "a woken worker does not preempt the driver"
    else:
        assert policies == [before] * WORKERS, "a policy that the user has chosen is kept"


@pytest.fixture
def two_cores() -> Iterator[list[int]]:
    """Two cores, as if the machine had no more."""
    if not hasattr(os, "sched_setaffinity") or len(affinity()) < WORKERS:
        pytest.skip("there is nothing to choose from here")
    before = os.sched_getaffinity(0)
    cores = affinity()[:WORKERS]
    os.sched_setaffinity(0, cores)
    yield cores
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("local_gradient", [None, lambda _item: None], ids=["workers alone", "the driver too"])
def test_processes_bind_to_a_core_only_while_they_wait(
    two_cores: list[int], local_gradient: Callable[[int], None] | None
) -> None:
    seen, driver, over = set(), threading.get_native_id(), threading.Event()

    def watch() -> None:
        while not over.wait(0.001):
            seen.add(frozenset(os.sched_getaffinity(driver)))

    with running("fork", local_gradient=local_gradient, take_turns=True) as it:
        watcher = threading.Thread(target=watch)
        watcher.start()
        assert run_all(it.runtime, Recorder.slowest_first) == [0, 1]
        over.set()
        watcher.join()
        assert frozenset(two_cores[-1:]) in seen, "the driver slept where the last worker works"
        assert affinity() == two_cores, "and is free again"
        for _ in range(3):
            it.runtime.work(4)
            assert run_all(it.runtime, Recorder.cores) == [set(two_cores)] * WORKERS, "who works is free, too"
            while [os.sched_getaffinity(pid) for pid in it.runtime.pids()] != [{core} for core in two_cores]:
                time.sleep(0.01)  # until they sleep; the test's own time-out is the limit
        assert affinity() == two_cores


def test_driver_affinity_is_restored_after_a_failure(two_cores: list[int]) -> None:
    with running("fork", take_turns=True) as it, pytest.raises(WorkerError):
        run_all(it.runtime, Recorder.fail, 0, "raise")
    assert affinity() == two_cores


def test_process_moved_to_other_cores_is_not_bound_again(two_cores: list[int]) -> None:
    with running("fork", take_turns=True) as it:
        run_all(it.runtime, Recorder.echo)
        os.sched_setaffinity(0, two_cores[:1])  # as `taskset -p` would
        run_all(it.runtime, Recorder.slowest_first)
        assert affinity() == two_cores[:1]


@pytest.mark.parametrize("options", [{}, {"take_turns": True, "cores": [0, 1]}, {"take_turns": True, "workers": 3}])
def test_no_wait_affinity_without_turns_nor_pinned_nor_with_other_worker_counts(
    two_cores: list[int], options: dict[str, Any]
) -> None:
    if "cores" in options:
        options = {**options, "cores": two_cores}
    with running("fork", **options) as it:
        run_all(it.runtime, Recorder.echo)
        own = [{core} for core in two_cores] if "cores" in options else [set(two_cores)] * it.jobs
        for _ in range(20):
            assert [os.sched_getaffinity(pid) for pid in it.runtime.pids()] == own
            time.sleep(0.005)


def test_an_answer_that_waits_for_others_is_no_silence() -> None:
    """The driver listens to the last worker, and the first has nothing more to say until then."""
    with running("forkserver", step_timeout_s=1.0) as it:
        run_all(it.runtime, Recorder.echo)
        assert run_all(it.runtime, Recorder.last_takes_its_time, 2.5) == list(range(WORKERS))


def test_a_death_is_noticed_while_the_last_still_works() -> None:
    with running("forkserver") as it:
        began = perf_counter()
        replies = it.runtime.submit_all(Recorder.last_takes_its_time, 20.0)
        os.kill(it.runtime.pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerDied, match="worker 0"):
            it.runtime.wait(replies, all=True)
        assert perf_counter() - began < 10.0


def _work_and_finish(runtime: Runtime[Recorder], replies: list[Reply[None]]) -> None:
    for _ in range(1000):
        runtime.work(4)
    runtime.wait(replies, all=True)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_failure_between_the_halves_of_a_command_is_noticed_in_work_or_after(how: str) -> None:
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
    assert run_all(shared.runtime, Recorder.echo, 3) == [(3,)] * shared.jobs, "commands still arrive"


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_worker_that_is_stuck_leaves_the_work_to_the_others(kind: str) -> None:
    with running(kind) as it:
        it.arena["mode"][0] = STUCK
        it.runtime.work(20)
        by_worker = it.arena["items"].sum(1)
        assert by_worker.sum() == 20
        assert by_worker[0] <= 1


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_local_gradient_takes_the_shards_workers_leave(kind: str) -> None:
    by_hand: list[int] = []
    with running(kind, workers=1, local_gradient=by_hand.append) as it:
        it.arena["mode"][0] = STUCK
        it.runtime.work(20)
        by_worker = it.arena["items"].sum(0)
    assert all(by_worker[item] + by_hand.count(item) == 1 for item in range(20))
    assert len(by_hand) >= 19, "the worker may have claimed one before it got stuck"


def test_local_gradient_that_raises_is_an_error_of_the_driver() -> None:
    def fail(item: int) -> None:
        raise ArithmeticError(f"item {item}")

    with running("fork", workers=1, local_gradient=fail) as it:
        it.arena["mode"][0] = STUCK
        with pytest.raises(ArithmeticError, match="item"):
            it.runtime.work(20)


@pytest.mark.parametrize("kind", ["inline", "forkserver", SLOW_SPAWN, "fork"])
def test_work_that_raises_is_an_error_with_its_traceback(kind: str) -> None:
    with running(kind) as it:
        it.arena["mode"][0] = RAISE
        with pytest.raises((WorkerError, RuntimeError), match="item 1 failed"):
            it.runtime.work(4)


def test_a_worker_that_dies_or_hangs_in_its_work_is_noticed() -> None:
    with running("forkserver") as it:
        it.arena["mode"][0] = DIE
        with pytest.raises(WorkerDied, match=r"`work`.*SIGKILL"):
            it.runtime.work(4)
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=1.0) as it:
        it.arena["mode"][0] = HANG
        with pytest.raises(WorkerHung, match="`work`"):
            it.runtime.work(4)


def test_local_gradient_redoes_the_shards_of_a_dead_worker() -> None:
    by_hand: list[int] = []

    def slowly(item: int) -> None:
        time.sleep(0.01)  # the worker gets some
        by_hand.append(item)

    with running("forkserver", local_gradient=slowly) as it:
        it.arena["mode"][0] = DIE
        for _ in range(10):  # in one of them a worker claims item 1, and dies
            by_hand.clear()
            it.arena["items"][...] = 0
            it.runtime.work(4)
            done = it.arena["items"].sum(0)[:4] + [by_hand.count(item) for item in range(4)]
            assert (done >= 1).all()
        it.arena["mode"][0] = 0
        replies = it.runtime.submit_all(Recorder.echo, 5)
        with pytest.raises(WorkerDied) as caught:
            it.runtime.wait(replies, all=True)
        worker = caught.value.worker
        assert it.runtime.respawn(worker, Recorder.echo, 1) == (1,)
        with pytest.raises(RuntimeError, match=rf"worker {worker}, `echo`: .*replaced .* Submit it again"):
            it.runtime.wait(replies, all=True)
        replies[worker] = it.runtime.submit(worker, Recorder.echo, 5)
        assert results(it.runtime, replies) == [(5,)] * 2
        it.runtime.work(4)


def test_claims_of_earlier_rounds_and_of_killed_workers_are_released() -> None:
    with running("forkserver", local_gradient=lambda _: None) as it:
        runtime = it.runtime
        assert isinstance(runtime, ProcessRuntime)
        offered, line = runtime._work_queue, it.arena["heartbeat"][0]
        assert offered is not None
        offered.put(0)
        line[CLAIM] = (offered._round | 3) + 1
        assert list(runtime._claimants(offered)) == [3]
        offered.put(0)
        assert not runtime._claimants(offered)
        offered.put(0)
        assert list(runtime._claimants(offered)) == [3]
        assert runtime._kill_claimants(offered, {3}, 1.0)
        assert not runtime._claimants(offered), "whether or not the system is done with it"


def test_only_workers_that_can_get_work_are_flagged_as_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "core_budget", lambda: 3)
    with running("forkserver", workers=4, local_gradient=lambda _: None) as it:
        assert run_all(it.runtime, Recorder.helps) == [True, True, False, False]
    with running("forkserver", workers=4) as it:
        assert run_all(it.runtime, Recorder.helps) == [True] * 4


@pytest.mark.parametrize("kind", ["forkserver", SLOW_SPAWN, "fork"])
def test_a_dead_worker_is_replaced_and_what_the_others_said_is_kept(kind: str) -> None:
    with running(kind, workers=3) as it:
        gc.collect()  # what earlier tests left to it
        before, open_before = it.runtime.pids(), psutil.Process().num_fds()
        os.kill(before[1], signal.SIGKILL)
        replies = it.runtime.submit_all(Recorder.note, 7)
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            it.runtime.wait(replies, all=True)
        assert caught.value.worker == 1
        assert it.runtime.respawn(1, Recorder.echo, "first") == ("first",)
        replies[1] = it.runtime.submit(1, Recorder.note, 7)
        assert results(it.runtime, replies) == [1, 1, 1]
        assert psutil.Process().num_fds() == open_before, "also while the error, and so the old one, is remembered"
        after = it.runtime.pids()
        assert (after[0], after[2]) == (before[0], before[2])
        assert after[1] != before[1]
        assert run_all(it.runtime, Recorder.share) == [(0, 0, 2), (1, 2, 2), (2, 4, 1)]


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


def test_waiting_for_a_later_reply_takes_in_the_earlier_ones_of_its_worker(shared: Running) -> None:
    first, second = (shared.runtime.submit(0, Recorder.echo, number) for number in (1, 2))
    with pytest.raises(RuntimeError, match="worker 0, `echo`: no result yet"):
        first.result()
    assert results(shared.runtime, [second]) == [(2,)]
    assert first.result() == (1,)
    assert shared.runtime.wait([first, second], all=False) == [first, second], "at once: they are done"


def test_a_wait_for_all_that_takes_too_long_returns_what_is_done() -> None:
    with running("forkserver") as it:
        replies = it.runtime.submit_all(Recorder.last_takes_its_time, 1.0)
        assert it.runtime.wait(replies, all=True, timeout_s=0.3) == replies[:1]
        assert results(it.runtime, replies) == [0, 1]


def results(runtime: Runtime[Any], replies: list[Reply[R]]) -> list[R]:
    """Wait for all of them."""
    return [reply.result() for reply in runtime.wait(replies, all=True)]


def taken(runtime: Runtime[Any], pending: list[Reply[R]], timeout_s: float) -> list[tuple[int, R]]:
    """Those that are done, with their workers; they are pending no more."""
    done = runtime.wait(pending, all=False, timeout_s=timeout_s)
    for reply in done:
        pending.remove(reply)
    return [(reply.worker, reply.result()) for reply in done]


def take_all(runtime: Runtime[Any], pending: list[Reply[Any]], answers: list[Any]) -> None:
    for _ in range(100):
        answers += taken(runtime, pending, 0.1)


def test_a_death_is_found_after_all_that_was_said_before() -> None:
    with running("forkserver") as it:
        assert isinstance(it.runtime, ProcessRuntime)
        pending: list[Reply[Any]] = [it.runtime.submit(1, Recorder.echo, "alive")]
        assert it.runtime._workers[1].conn.poll(60.0), "sent before the death, in either order of arrival"
        pending.append(it.runtime.submit(0, Recorder.echo, "last words"))
        pending.append(it.runtime.submit(0, Recorder.fail, 0, "kill"))
        pending.append(it.runtime.submit(0, Recorder.echo, "never"))
        answers: list[Any] = []
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            take_all(it.runtime, pending, answers)
        assert sorted(answers) == [(0, ("last words",)), (1, ("alive",))]
        pending.append(it.runtime.submit(0, Recorder.echo, "to the dead"))
        assert it.runtime.respawn(caught.value.worker, Recorder.echo) == ()
        assert [(reply.name, reply.forgotten) for reply in pending] == [("fail", True), ("echo", True), ("echo", True)]
        again = it.runtime.submit(0, Recorder.echo, "again")
        assert taken(it.runtime, [again], 5.0) == [(0, ("again",))], "what the old one had to do is forgotten"


def test_worker_death_is_reported_while_another_worker_keeps_sending() -> None:
    with running("forkserver") as it:
        pending: list[Reply[Any]] = [it.runtime.submit(1, Recorder.fail, 1, "kill")]
        pending += [it.runtime.submit(0, Recorder.echo, number) for number in range(8)]
        time.sleep(0.5)  # all of it is there to be taken, and so is the death
        assert taken(it.runtime, pending, 0.0) == [(0, (0,))]
        with pytest.raises(WorkerDied, match="SIGKILL"):
            taken(it.runtime, pending, 0.0)


def test_a_worker_that_rests_is_not_taken_for_hung() -> None:
    with running("forkserver", step_timeout_s=1.0, start_timeout_s=30.0) as it:
        assert taken(it.runtime, [it.runtime.submit(0, Recorder.beat, 1, 0.0)], 5.0) == [(0, 1)]
        time.sleep(1.5)
        pending: list[Reply[Any]] = [it.runtime.submit(0, Recorder.beat, 2, 0.3)]
        assert taken(it.runtime, pending, 0.1) == []
        assert taken(it.runtime, pending, 5.0) == [(0, 2)]
        pending.append(it.runtime.submit(0, Recorder.fail, 0, "sleep"))
        with pytest.raises(WorkerHung):
            take_all(it.runtime, pending, [])


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


def test_without_pipes_to_poll_items_are_dealt_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.work_queue.AVAILABLE", False)
    with running("forkserver") as it:
        it.runtime.work(5)
        assert it.arena["items"][:, :5].tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]


def test_without_pipes_to_poll_the_driver_does_what_comes_within_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.work_queue.AVAILABLE", False)
    by_hand: list[int] = []
    with running("forkserver", local_gradient=by_hand.append) as it:
        replies = it.runtime.submit_all(Recorder.slowest_first)
        it.runtime.work(3)
        assert by_hand == [0, 1, 2]
        assert results(it.runtime, replies) == [0, 1]


def test_groups_are_shared_out_whole_and_in_order(shared: Running) -> None:
    expected = [(0, 0, 5)] if shared.kind == "inline" else [(0, 0, 3), (1, 3, 2)]
    assert run_all(shared.runtime, Recorder.share) == expected


def test_processes_are_others_and_inline_is_this_one(shared: Running) -> None:
    pids = run_all(shared.runtime, Recorder.pid)
    me = psutil.Process().pid
    if shared.kind == "inline":
        assert pids == [me]
        assert shared.runtime.num_workers == 0
    else:
        assert len({me, *pids}) == WORKERS + 1
        assert shared.runtime.num_workers == WORKERS
        assert shared.runtime.pids() == pids


def test_a_worker_computes_with_one_thread(shared: Running) -> None:
    if shared.kind != "inline":  # inline has the caller's own
        assert run_all(shared.runtime, Recorder.threads) == [(1, 1, "1")] * WORKERS


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


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", ValueError),
        ("odd", OddError),
        ("env", EnvError),
        ("textless", TextlessError),
        ("sys_exit", SystemExit),
    ],
)
def test_inline_an_error_is_the_error_itself(how: str, error: type[BaseException]) -> None:
    with running("inline") as it:
        with pytest.raises(error):
            run_all(it.runtime, Recorder.fail, 0, how)
        assert run_all(it.runtime, Recorder.fail, 1, how) == [None]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError: nonsense in the job"),
        ("odd", "OddError: odd in the job (code 42)"),
        ("env", "env 3 raised in step 4 with action 1: KeyError: 'x'"),
        ("textless", "TextlessError (its text could not be made)"),
        ("sys_exit", "SystemExit: 3"),
    ],
)
def test_an_error_arrives_with_its_text_and_its_traceback(how: str, said: str) -> None:
    with running("forkserver") as it:
        with pytest.raises(WorkerError) as caught:
            run_all(it.runtime, Recorder.fail, 1, how)
        text = str(caught.value)
        assert said in text
        pid = it.runtime.pids()[1]
        assert f"worker 1 (pid {pid}, groups 3-4) failed in `fail`" in text
        assert "Its traceback:" in text
        assert "in fail" in text
        assert "jobs.py" in text


@pytest.mark.parametrize(
    ("how", "said"), [("exit", "exit code 7"), ("kill", "SIGKILL. Often the kernel's out-of-memory killer")]
)
@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_worker_that_dies_is_named_with_what_ended_it(kind: str, how: str, said: str) -> None:
    with running(kind) as it:
        pid = it.runtime.pids()[1]
        with pytest.raises(WorkerDied) as caught:
            run_all(it.runtime, Recorder.fail, 1, how)
        assert f"worker 1 (pid {pid}, groups 3-4) ended in `fail`" in str(caught.value)
        assert said in str(caught.value)
        # And the next command says so too, rather than wait for ever.
        with pytest.raises(WorkerDied):
            run_all(it.runtime, Recorder.pid)


def test_a_silent_worker_is_called_hung_and_closing_still_ends_it() -> None:
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=0.5) as it:
        # Signs of life keep it: three times the limit in all.
        assert run_all(it.runtime, Recorder.beat, 5, 0.3) == [5, 5]
        with pytest.raises(WorkerHung, match=r"worker 1 .*no sign of life in `fail`.*--env-timeout-s"):
            run_all(it.runtime, Recorder.fail, 1, "sleep")
        began = perf_counter()
        it.runtime.close()
        assert perf_counter() - began < 10.0


def test_a_stopped_worker_that_reads_nothing_does_not_keep_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.worker_handle.SEND_TIMEOUT_S", 1)
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=1.0) as it:
        run_all(it.runtime, Recorder.beat, 1, 0.0)
        os.kill(it.runtime.pids()[1], signal.SIGSTOP)
        with pytest.raises(WorkerHung, match=r"worker 1 .*it is stopped, as by SIGSTOP"):
            it.runtime.wait(it.runtime.submit_all(Recorder.echo, bytes(8 << 20)), all=True)
        assert len(it.runtime.respawn(1, Recorder.echo, bytes(8 << 20))[0]) == 8 << 20
        assert run_all(it.runtime, Recorder.share) == [(0, 0, 3), (1, 3, 2)]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_ends_with_another_even_if_that_ended_before_it_asked(when: str) -> None:
    close = {"before": "os.close(w); die_with_parent(r)", "after": "die_with_parent(r); os.close(w)"}[when]
    imports = "import os, time; from paceline.system.die_with_parent import die_with_parent"
    script = f"{imports}; r, w = os.pipe(); {close}; time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", script], timeout=50).returncode == -signal.SIGKILL


def test_before_the_first_heartbeat_the_start_up_limit_counts() -> None:
    """Building envs and resetting them for the first time may take longer than a step."""
    with running("forkserver", start_timeout_s=2.0, step_timeout_s=0.1) as it:
        assert run_all(it.runtime, Recorder.slowest_first) == [0, 1]  # 0.2 s without a sign of life
        with pytest.raises(WorkerHung, match="limit 2 s"):
            run_all(it.runtime, Recorder.fail, 0, "sleep")


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_job_that_cannot_be_built_in_one_worker_stops_all(kind: str) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    said = r"(?s)worker 1 .* failed in `start`: ValueError: no job for worker 1"
    with pytest.raises(WorkerError, match=said), running(kind, program=OneFails(1)):
        pass
    after = psutil.Process().children(recursive=True)
    assert not [c for c in after if c.pid not in before and "paceline: worker" in " ".join(c.cmdline())]


def test_more_workers_and_pinned_ones() -> None:
    allowed = sorted(psutil.Process().cpu_affinity())
    with running("forkserver", workers=4, cores=allowed) as it:
        assert run_all(it.runtime, Recorder.share) == [(0, 0, 2), (1, 2, 1), (2, 3, 1), (3, 4, 1)]
        assert run_all(it.runtime, Recorder.affinity) == [[allowed[i % len(allowed)]] for i in range(4)]


def test_a_runtime_that_is_forgotten_is_closed() -> None:
    arena = Arena.create(fields(1))
    runtime = ProcessRuntime(Recorder, arena, GROUPS, 1)
    pid = runtime.pids()[0]
    process = psutil.Process(pid)
    del runtime
    process.wait(10)
    arena.close()


@given(st.integers(1, 40), st.integers(0, 40))
def test_shares_cover_all_groups_evenly(groups: int, workers: int) -> None:
    workers = min(groups, workers)
    parts = shares(groups, workers)
    assert [part.worker for part in parts] == list(range(max(1, workers)))
    assert [g for part in parts for g in range(part.first_group, part.first_group + part.groups)] == list(range(groups))
    assert max(p.groups for p in parts) - min(p.groups for p in parts) <= 1


def test_what_cannot_be_sent_is_named_before_anything_starts() -> None:
    lock = threading.Lock()

    def program(arena: Arena, share: Any) -> Recorder:
        with lock:
            return Recorder(arena, share)

    with pytest.raises(ConfigError, match=r"captured 'lock' \(lock\): cannot be sent to workers.*--num-workers 0"):
        pack(program)


@pytest.mark.parametrize(
    ("code", "said"), [(-11, "SIGSEGV"), (-9, "out-of-memory"), (7, "exit code 7"), (None, "still runs")]
)
def test_exit_codes_in_words(code: int | None, said: str) -> None:
    assert said in describe_exit(code)
