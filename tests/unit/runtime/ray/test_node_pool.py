"""The workers of one node, driven by calls."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
from tests.jobs import Recorder, TextlessError
from tests.unit.runtime.ray.nodes import GROUPS, packed, setup

from paceline.errors import EnvError, WorkerDied, WorkerError
from paceline.memory.worker_status import MEMORY
from paceline.runtime.ray.node_pool import NodePool, PoolReply, failure

MODE = {"mode": [np.array([5])]}
NONE: dict[str, list[np.ndarray]] = {}


@pytest.fixture
def pool() -> Iterator[NodePool]:
    """Two workers with the groups 10 to 13 of a run."""
    made = NodePool(packed(), setup(10, GROUPS, 2))
    yield made
    made.close()


def results(pool: NodePool, count: int) -> list[PoolReply]:
    found: list[PoolReply] = []
    deadline = time.perf_counter() + 60.0
    while len(found) < count and time.perf_counter() < deadline:
        found += pool.results(1.0)
    return found


def test_a_call_to_all_returns_results_and_one_buffer(pool: NodePool) -> None:
    reply = pool.do(Recorder.note, (7,), MODE)
    assert (reply.kind, reply.value) == ("ok", [1, 1])
    assert reply.buffer is not None
    assert reply.buffer.view(np.int64).reshape(2, 16)[:, 0].tolist() == [7, 7]
    assert pool._arena["mode"].tolist() == [5], "data of the driver arrives before the call"
    assert pool.do(Recorder.share, (), NONE).value == [(0, 10, 2), (1, 12, 2)]


def test_a_call_to_one_worker_returns_its_part_only(pool: NodePool) -> None:
    reply = pool.tell(1, Recorder.note, (8,), MODE)
    assert (reply.kind, reply.worker, reply.value) == ("ok", 1, 1)
    assert reply.buffer is not None
    assert reply.buffer.nbytes == 16 * 8


def test_posted_calls_are_answered_in_the_order_of_each_worker(pool: NodePool) -> None:
    assert pool.results(0.0) == []
    for number in range(3):
        for worker in range(2):
            pool.post(worker, Recorder.echo, (number,), NONE)
    found = results(pool, 6)
    for worker in range(2):
        assert [reply.value for reply in found if reply.worker == worker] == [(0,), (1,), (2,)]
    assert pool.tell(0, Recorder.echo, ("after",), NONE).value == ("after",), "other calls go through the same thread"
    pool.renew(MODE)
    assert pool.tell(0, Recorder.echo, (), NONE).kind == "ok"
    assert pool._arena["mode"].tolist() == [5]


def test_a_dead_worker_is_reported_replaced_and_joins_the_call_again(pool: NodePool) -> None:
    before = pool.pids()
    os.kill(before[1], signal.SIGKILL)
    reply = pool.do(Recorder.note, (7,), NONE)
    assert (reply.kind, reply.worker) == ("died", 1)
    assert "SIGKILL" in reply.value
    assert pool.respawn(1, Recorder.echo, ("new",), NONE).value == ("new",)
    assert pool.finish().value == [1, 1]
    assert pool.pids()[0] == before[0]
    assert pool.pids()[1] != before[1]


def test_a_death_during_posted_calls_stops_the_results_until_the_worker_is_replaced(pool: NodePool) -> None:
    pool.post(1, Recorder.fail, (1, "kill"), NONE)
    [reply] = results(pool, 1)
    assert (reply.kind, reply.worker) == ("died", 1)
    pool.post(0, Recorder.echo, (1,), NONE)
    assert pool.results(0.3) == []
    assert pool.respawn(1, Recorder.echo, (), NONE).kind == "ok"
    assert [reply.value for reply in results(pool, 1)] == [(1,)]


def test_errors_are_sent_as_text(pool: NodePool) -> None:
    reply = pool.do(Recorder.fail, (1, "raise"), NONE)
    assert reply.kind == "error"
    assert "ValueError: nonsense in the job" in reply.value


def test_nothing_can_be_finished_before_a_call_to_all(pool: NodePool) -> None:
    reply = pool.finish()
    assert reply.kind == "error"
    assert "no call to all workers was started" in reply.value


def test_the_memory_of_workers_is_sampled_for_the_driver(pool: NodePool) -> None:
    pool.do(Recorder.echo, (), NONE)
    memory_mb = pool._arena["heartbeat"][:, MEMORY] / 1024
    assert (memory_mb > 1).all()
    resident_mb = [psutil.Process(pid).memory_info().rss / 2**20 for pid in pool.pids()]
    assert (memory_mb < resident_mb).all(), "pages that processes share count in parts"


def test_heartbeats_of_workers_are_counted(pool: NodePool) -> None:
    before = pool.beats()
    pool.do(Recorder.beat, (3, 0.0), NONE)
    assert pool.beats() == before + 6


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (WorkerDied("worker 1 ended", 1), PoolReply("died", 1, "worker 1 ended")),
        (WorkerError("it failed"), PoolReply("error", value="it failed")),
        (EnvError("env 3 raised"), PoolReply("error", value="env 3 raised")),
        (KeyError("x"), PoolReply("error", value="KeyError: 'x'")),
        (TextlessError(), PoolReply("error", value="TextlessError (its text could not be made)")),
    ],
)
def test_what_an_error_becomes(error: Exception, reply: PoolReply) -> None:
    assert failure(error) == reply
