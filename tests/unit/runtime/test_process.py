"""Worker processes: core binding, tasks of `work`, replacement of dead workers, and the end of a runtime."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from tests.contract.runtimes import SLOW_SPAWN, WORKERS, results, running
from tests.jobs import DIE, GROUPS, STUCK, OneFails, Recorder, fields

from paceline.errors import WorkerDied, WorkerError
from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT, CLAIM, SPAN
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import run_all
from paceline.system import threads
from paceline.system.limits import affinity


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


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_local_gradient_takes_the_shards_workers_leave(kind: str) -> None:
    by_hand: list[int] = []
    with running(kind, workers=1, local_gradient=by_hand.append) as it:
        it.arena["mode"][0] = STUCK
        it.runtime.work(20)
        by_worker = it.arena["items"].sum(0)
    assert all(by_worker[task] + by_hand.count(task) == 1 for task in range(20))
    assert len(by_hand) >= 19, "the worker may have claimed one before it got stuck"


def test_local_gradient_that_raises_is_an_error_of_the_driver() -> None:
    def fail(task: int) -> None:
        raise ArithmeticError(f"task {task}")

    with running("fork", workers=1, local_gradient=fail) as it:
        it.arena["mode"][0] = STUCK
        with pytest.raises(ArithmeticError, match="task"):
            it.runtime.work(20)


def test_local_gradient_redoes_the_shards_of_a_dead_worker() -> None:
    by_hand: list[int] = []

    def slowly(task: int) -> None:
        time.sleep(0.01)  # the worker gets some
        by_hand.append(task)

    with running("forkserver", local_gradient=slowly) as it:
        it.arena["mode"][0] = DIE
        for _ in range(10):  # in one of them a worker claims task 1, and dies
            by_hand.clear()
            it.arena["items"][...] = 0
            it.runtime.work(4)
            done = it.arena["items"].sum(0)[:4] + [by_hand.count(task) for task in range(4)]
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
def test_a_dead_worker_is_replaced_and_results_of_the_others_are_kept(kind: str) -> None:
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


def test_without_poll_items_are_submitted_round_robin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.work_queue.AVAILABLE", False)
    with running("forkserver") as it:
        it.runtime.work(5)
        assert it.arena["items"][:, :5].tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]


def test_without_poll_the_driver_computes_items_while_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.work_queue.AVAILABLE", False)
    by_hand: list[int] = []
    with running("forkserver", local_gradient=by_hand.append) as it:
        replies = it.runtime.submit_all(Recorder.slowest_first)
        it.runtime.work(3)
        assert by_hand == [0, 1, 2]
        assert results(it.runtime, replies) == [0, 1]


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_job_that_cannot_be_built_in_one_worker_stops_all(kind: str) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    said = r"(?s)worker 1 .* failed in `start`: ValueError: no job for worker 1"
    with pytest.raises(WorkerError, match=said), running(kind, program=OneFails(1)):
        pass
    after = psutil.Process().children(recursive=True)
    assert not [c for c in after if c.pid not in before and "paceline: worker" in " ".join(c.cmdline())]


def test_workers_are_pinned_to_cores_round_robin() -> None:
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


def test_a_replaced_worker_starts_with_an_empty_status_line() -> None:
    with running("fork") as it:
        line = it.arena["heartbeat"][1]
        os.kill(it.runtime.pids()[1], signal.SIGKILL)
        with pytest.raises(WorkerDied):
            run_all(it.runtime, Recorder.echo)
        line[[BEAT, CLAIM, SPAN]] = 99
        it.runtime.respawn(1, Recorder.echo)
        assert line[[BEAT, CLAIM, SPAN]].tolist() == [0, 0, 0], "no heartbeat, no claimed task and no running env yet"
