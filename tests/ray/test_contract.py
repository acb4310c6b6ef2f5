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
from tests.contract.test_runtimes import (  # noqa: F401 - collected here once more, with the fixture below
    Running,
    _take_all,
    test_a_worker_computes_with_one_thread,
    test_commands_are_done_in_order_and_by_all_before_run_returns,
    test_every_item_is_done_once_by_whoever_is_free,
    test_groups_are_shared_out_whole_and_in_order,
    test_results_come_in_worker_order_whoever_answers_first,
    test_what_is_posted_is_done_in_order_and_taken_from_whoever_is_first,
    test_work_is_done_between_the_halves_of_a_command,
)
from tests.jobs import OneFails
from tests.ray.recorder import running

from paceline.errors import WorkerDied, WorkerError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster"), pytest.mark.timeout(300)]
LAYOUTS = [(1, 2), (2, 1)]
"""Nodes, and workers on each."""


@pytest.fixture(scope="module")
def shared(cluster: Any) -> Iterator[Running]:
    """One node with two workers, for the tests that are everyone's."""
    with running() as it:
        yield it


@pytest.mark.parametrize(("nodes", "workers"), [*LAYOUTS, (3, 1), (2, 2)])
def test_groups_are_numbered_through_over_all_nodes(nodes: int, workers: int) -> None:
    with running(nodes, workers) as it:
        owned = [share[1:] for share in it.runtime.run("share")]
        assert [first for first, _ in owned] == [sum(count for _, count in owned[:i]) for i in range(len(owned))]
        assert sum(count for _, count in owned) == 5
        assert it.runtime.num_workers == nodes * workers
        pids = it.runtime.run("pid")
        assert len({*pids, os.getpid()}) == nodes * workers + 1
        assert it.runtime.run("note", 7) == [1] * nodes * workers
        assert (it.arena["log"][:, 0] == 7).all(), "what workers wrote is in the driver's memory"


def test_closing_ends_every_worker_and_may_be_repeated() -> None:
    with running(2, 1) as it:
        pids = it.runtime.run("pid")
        began = perf_counter()
        it.runtime.close()
        it.runtime.close()
        assert perf_counter() - began < 10.0
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


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
            it.runtime.run("fail", 1, how)
        text = str(caught.value)
        assert said in text
        assert "groups 3-4) failed in `fail`" in text
        assert "node 0" in text
        assert "jobs.py" in text


@pytest.mark.parametrize(("nodes", "workers"), LAYOUTS)
def test_a_dead_worker_is_replaced_and_what_the_others_said_is_kept(nodes: int, workers: int) -> None:
    with running(nodes, workers) as it:
        before = it.runtime.run("pid")
        os.kill(before[1], signal.SIGKILL)
        it.runtime.start("note", 7)
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            it.runtime.finish()
        assert caught.value.worker == 1
        assert it.runtime.respawn(1, "echo", "first") == ("first",)
        assert it.runtime.finish() == [1, 1]
        after = it.runtime.run("pid")
        assert after[0] == before[0]
        assert after[1] != before[1]


def test_a_death_is_found_by_take_after_all_that_was_said_before() -> None:
    with running() as it:
        it.runtime.post(1, "echo", "alive")
        it.runtime.post(0, "echo", "last words")
        it.runtime.post(0, "fail", 0, "kill")
        it.runtime.post(0, "echo", "never")
        answers: list[Any] = []
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            _take_all(it.runtime, answers)
        assert sorted(answers) == [(0, ("last words",)), (1, ("alive",))]
        it.runtime.post(0, "echo", "to the dead")
        assert it.runtime.respawn(caught.value.worker, "echo") == ()
        it.runtime.post(0, "echo", "again")
        assert it.runtime.take(5.0) == [(0, ("again",))], "what was posted to the old one is forgotten"


def test_a_silent_worker_is_called_hung_by_its_node() -> None:
    with running(step_timeout_s=1.0, start_timeout_s=30.0) as it:
        assert it.runtime.run("beat", 4, 0.5) == [4, 4], "signs of life keep it"
        with pytest.raises(WorkerDied, match=r"node 0.*no sign of life in `fail`"):
            it.runtime.run("fail", 1, "sleep")


def test_a_node_that_is_stuck_is_called_hung() -> None:
    with running(2, 1, step_timeout_s=2.0) as it:
        actor = it.runtime.fleet.crews[1].node.about["pid"]  # type: ignore[attr-defined]
        it.runtime.run("beat", 1, 0.0)
        os.kill(actor, signal.SIGSTOP)
        try:
            with pytest.raises(WorkerDied, match="node 1"):
                it.runtime.run("echo", 1)
        finally:
            os.kill(actor, signal.SIGCONT)


def test_a_job_that_cannot_be_built_in_one_worker_stops_all() -> None:
    said = r"(?s)node 0.*worker 1 .* failed in `start`: ValueError: no job for worker 1"
    with pytest.raises(WorkerError, match=said), running(program=OneFails(1)):
        pass


@pytest.mark.parametrize("posted", [False, True])
def test_the_death_of_an_actor_is_the_death_of_its_workers(posted: bool) -> None:
    with running(2, 2) as it:
        pids = it.runtime.run("pid")
        os.kill(it.runtime.fleet.crews[1].node.about["pid"], signal.SIGKILL)  # type: ignore[attr-defined]
        told: list[Any] = []
        if posted:
            for worker in range(4):
                it.runtime.post(worker, "echo", worker)
        else:
            it.runtime.start("note", 7)
        for worker in (2, 3):
            with pytest.raises(WorkerDied, match=r"node 1 .* was lost") as caught:
                _take_all(it.runtime, told) if posted else it.runtime.finish()
            assert caught.value.worker == worker
            assert it.runtime.respawn(worker, "note", 1) == 1
        if posted:
            assert sorted(told) == [(0, (0,)), (1, (1,))]
            it.runtime.post(3, "echo", 3)
            assert it.runtime.take(10.0) == [(3, (3,))]
        else:
            assert it.runtime.finish() == [1, 1, 2, 2], "and then they do what was asked"
            assert it.arena["log"][:, :2].tolist() == [[7, 0], [7, 0], [1, 7], [1, 7]]
        time.sleep(0.5)
        assert not [pid for pid in pids[2:] if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
