"""The contract of runtimes, on a Ray cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import psutil
import pytest
from tests.contract.runtimes import Running, results, take_all, taken
from tests.contract.test_runtimes import (  # noqa: F401 - collected here once more, with the fixture below
    test_a_worker_computes_with_one_thread,
    test_calls_run_in_order_on_all_workers_before_run_all_returns,
    test_every_item_is_done_once_by_any_free_worker,
    test_groups_are_divided_whole_and_in_order,
    test_results_come_in_worker_order_not_in_reply_order,
    test_submitted_calls_run_in_order_and_replies_come_first_ready,
    test_work_is_computed_between_submit_and_wait,
)
from tests.jobs import OneFails, Recorder
from tests.ray.recorder import running

from paceline.errors import WorkerDied, WorkerError
from paceline.runtime.protocol import Reply, run_all

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster"), pytest.mark.timeout(300)]
LAYOUTS = [(1, 2), (2, 1)]
"""Nodes, and workers on each."""
GONE_S = 60.0
"""Seconds in which a process must end; generous, because the machine may be busy."""


def gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    deadline = perf_counter() + GONE_S
    while left := [pid for pid in pids if psutil.pid_exists(pid) and not _zombie(pid)]:
        assert perf_counter() < deadline, f"still running: {left}"
        time.sleep(0.05)


def _zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def shared(cluster: Any) -> Iterator[Running]:
    """One node with two workers, shared by the tests that do not break it."""
    with running() as it:
        yield it


@pytest.mark.parametrize(("nodes", "workers"), [*LAYOUTS, (3, 1), (2, 2)])
def test_groups_are_numbered_through_over_all_nodes(nodes: int, workers: int) -> None:
    with running(nodes, workers) as it:
        owned = [share[1:] for share in run_all(it.runtime, Recorder.share)]
        assert [first for first, _ in owned] == [sum(count for _, count in owned[:i]) for i in range(len(owned))]
        assert sum(count for _, count in owned) == 5
        assert it.runtime.num_workers == nodes * workers
        pids = run_all(it.runtime, Recorder.pid)
        assert len({*pids, os.getpid()}) == nodes * workers + 1
        assert run_all(it.runtime, Recorder.note, 7) == [1] * nodes * workers
        assert (it.arena["log"][:, 0] == 7).all(), "what workers wrote is in the driver's memory"


def test_closing_ends_every_worker_and_may_be_repeated() -> None:
    with running(2, 1) as it:
        pids = run_all(it.runtime, Recorder.pid)
        began = perf_counter()
        it.runtime.close()
        it.runtime.close()
        assert perf_counter() - began < GONE_S
    gone(pids)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError: nonsense in the job"),
        ("env", "env 3 raised in step 4 with action 1: KeyError: 'x'"),
        ("textless", "TextlessError (its text could not be made)"),
    ],
)
def test_an_error_arrives_with_its_text_and_its_traceback(how: str, said: str) -> None:
    with running() as it:
        with pytest.raises(WorkerError) as caught:
            run_all(it.runtime, Recorder.fail, 1, how)
        text = str(caught.value)
        assert said in text
        assert "groups 3-4) failed in `fail`" in text
        assert "node 0" in text
        assert "jobs.py" in text


@pytest.mark.parametrize(("nodes", "workers"), LAYOUTS)
def test_a_dead_worker_is_replaced_and_results_of_the_others_are_kept(nodes: int, workers: int) -> None:
    with running(nodes, workers) as it:
        before = run_all(it.runtime, Recorder.pid)
        os.kill(before[1], signal.SIGKILL)
        replies = it.runtime.submit_all(Recorder.note, 7)
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            it.runtime.wait(replies, all=True)
        assert caught.value.worker == 1
        assert it.runtime.respawn(1, Recorder.echo, "first") == ("first",)
        replies[1] = it.runtime.submit(1, Recorder.note, 7)
        assert results(it.runtime, replies) == [1, 1]
        after = run_all(it.runtime, Recorder.pid)
        assert after[0] == before[0]
        assert after[1] != before[1]


def test_a_death_is_found_by_take_after_all_that_was_said_before() -> None:
    with running() as it:
        pending: list[Reply[Any]] = [it.runtime.submit(1, Recorder.echo, "alive")]
        pending.append(it.runtime.submit(0, Recorder.echo, "last words"))
        pending.append(it.runtime.submit(0, Recorder.fail, 0, "kill"))
        pending.append(it.runtime.submit(0, Recorder.echo, "never"))
        answers: list[Any] = []
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            take_all(it.runtime, pending, answers)
        assert sorted(answers) == [(0, ("last words",)), (1, ("alive",))]
        pending.append(it.runtime.submit(0, Recorder.echo, "to the dead"))
        assert it.runtime.respawn(caught.value.worker, Recorder.echo) == ()
        assert [reply.forgotten for reply in pending] == [True] * 3
        again = it.runtime.submit(0, Recorder.echo, "again")
        assert taken(it.runtime, [again], 5.0) == [(0, ("again",))], "what the old one had to do is forgotten"


def test_a_silent_worker_is_called_hung_by_its_node() -> None:
    with running(step_timeout_s=3.0, start_timeout_s=30.0) as it:
        # Longer in all than the timeout, and each pause much shorter, so that a busy machine does not look like a hang.
        assert run_all(it.runtime, Recorder.beat, 15, 0.3) == [15, 15], "signs of life keep it"
        with pytest.raises(WorkerDied, match=r"node 0.*no sign of life in `fail`"):
            run_all(it.runtime, Recorder.fail, 1, "sleep")


def test_a_node_that_is_stuck_is_called_hung() -> None:
    with running(2, 1, step_timeout_s=2.0) as it:
        actor = it.runtime.placement.pools[1].node.about["pid"]  # type: ignore[attr-defined]
        run_all(it.runtime, Recorder.beat, 1, 0.0)
        os.kill(actor, signal.SIGSTOP)
        try:
            with pytest.raises(WorkerDied, match="node 1"):
                run_all(it.runtime, Recorder.echo, 1)
        finally:
            os.kill(actor, signal.SIGCONT)


def test_a_job_that_cannot_be_built_in_one_worker_stops_all() -> None:
    said = r"(?s)node 0.*worker 1 .* failed in `start`: ValueError: no job for worker 1"
    with pytest.raises(WorkerError, match=said), running(program=OneFails(1)):
        pass


@pytest.mark.parametrize("posted", [False, True])
def test_the_death_of_an_actor_is_the_death_of_its_workers(posted: bool) -> None:
    with running(2, 2) as it:
        pids = run_all(it.runtime, Recorder.pid)
        os.kill(it.runtime.placement.pools[1].node.about["pid"], signal.SIGKILL)  # type: ignore[attr-defined]
        received: list[Any] = []
        echoes: list[Reply[Any]] = []
        notes: list[Reply[int]] = []
        if posted:
            echoes = [it.runtime.submit(worker, Recorder.echo, worker) for worker in range(4)]
        else:
            notes = it.runtime.submit_all(Recorder.note, 7)
        for worker in (2, 3):
            with pytest.raises(WorkerDied, match=r"node 1 .* was lost") as caught:
                take_all(it.runtime, echoes, received) if posted else it.runtime.wait(notes, all=True)
            assert caught.value.worker == worker
            assert it.runtime.respawn(worker, Recorder.note, 1) == 1
            if posted:
                echoes = [reply for reply in echoes if reply.worker != worker]
            else:
                notes[worker] = it.runtime.submit(worker, Recorder.note, 7)
        if posted:
            assert sorted(received) == [(0, (0,)), (1, (1,))]
            assert taken(it.runtime, [it.runtime.submit(3, Recorder.echo, 3)], 10.0) == [(3, (3,))]
        else:
            assert results(it.runtime, notes) == [1, 1, 2, 2], "and then they do what was asked"
            assert it.arena["log"][:, :2].tolist() == [[7, 0], [7, 0], [1, 7], [1, 7]]
        gone(pids[2:])
