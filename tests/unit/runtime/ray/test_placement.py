"""Where workers are placed, and where they go when their node is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from tests.jobs import Recorder
from tests.unit.runtime.ray.loopback import LoopbackCluster
from tests.unit.runtime.ray.nodes import GROUPS, packed, setup

from paceline.errors import WorkerDied, WorkerError
from paceline.runtime.ray import placement as placement_module
from paceline.runtime.ray.node import NodeCall
from paceline.runtime.ray.placement import OnNodeLoss, Placement


@contextmanager
def placed(
    nodes: int,
    workers: int,
    *,
    groups: int = GROUPS,
    on_node_loss: OnNodeLoss = "continue",
    start_timeout_s: float = 60.0,
) -> Iterator[tuple[Placement, LoopbackCluster]]:
    cluster = LoopbackCluster(nodes, workers)
    made = Placement(
        cast(Any, cluster),
        groups,
        cluster.put(packed()),
        setup,
        start_timeout_s=start_timeout_s,
        step_timeout_s=60.0,
        on_node_loss=on_node_loss,
    )
    try:
        made.launch()
        yield made, cluster
    finally:
        made.close()


def where(placement: Placement) -> list[tuple[int, list[int]]]:
    """Of each pool the node that it is on, and its workers."""
    return [(pool.node.bundle, [share.worker for share in pool.shares]) for pool in placement.pools]


def lose(placement: Placement, cluster: LoopbackCluster, bundle: int) -> None:
    """Kill a node and have the placement notice it."""
    cluster.down.add(bundle)
    [pool] = [pool for pool in placement.pools if pool.node.bundle == bundle]
    reference = pool.node.actor.ping.remote()
    pool.node.actor.kill()
    assert placement.answer(pool, reference) is None


def test_workers_are_numbered_over_all_nodes() -> None:
    with placed(2, 2) as (placement, _):
        assert where(placement) == [(0, [0, 1]), (1, [2, 3])]
        assert [(share.first_group, share.groups) for share in placement.shares] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        assert placement.pools[1].share(3).first_group == 3
        assert not any(placement.waits(pool) for pool in placement.pools)
        placement.raise_lost()


def test_workers_of_a_lost_node_are_lost_and_placed_on_the_others() -> None:
    with placed(3, 1) as (placement, cluster):
        lose(placement, cluster, 1)
        assert list(placement.lost) == [1]
        with pytest.raises(WorkerDied, match=r"worker 1: node 1 .*was lost") as caught:
            placement.raise_lost()
        assert caught.value.worker == 1
        pool = placement.place(1)
        assert (pool.node.bundle, pool.bundle) == (0, 1)
        assert pool.name.endswith("in place of 1")
        assert placement.waits(pool), "its worker has not executed a call yet"
        assert where(placement) == [(0, [0]), (0, [1]), (2, [2])]


def test_a_node_with_several_workers_is_divided_over_the_others() -> None:
    with placed(3, 2, groups=6) as (placement, cluster):
        lose(placement, cluster, 1)
        placement.place(2)
        assert where(placement) == [(0, [0, 1]), (0, [2]), (2, [3]), (2, [4, 5])]


def test_workers_move_back_when_their_node_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_module, "LOOK_S", 0.0)
    with placed(2, 1) as (placement, cluster):
        lose(placement, cluster, 1)
        placement.place(1)
        placement.lost.clear()
        placement.move_back()
        assert not placement.lost, "the bundle has no node yet"
        cluster.down.clear()
        placement.move_back()
        assert cluster.is_ready(placement._starting[1], 30.0)
        placement.move_back()
        assert "moves to node 1" in placement.lost[1]
        assert placement.place(1).node.bundle == 1
        assert where(placement) == [(0, [0]), (1, [1])]


def test_a_run_that_waits_gets_its_node_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with placed(2, 1, on_node_loss="wait") as (placement, cluster):
        lose(placement, cluster, 1)
        monkeypatch.setattr(time, "sleep", lambda _seconds: cluster.down.clear())
        assert placement.place(1).node.bundle == 1
        assert "node 1 is lost: waiting until the cluster has another node" in caplog.text


def test_without_any_node_the_run_gives_up_after_the_start_timeout() -> None:
    with placed(1, 1) as (placement, cluster):
        lose(placement, cluster, 0)
        placement._start_s = 0.1
        with pytest.raises(WorkerError, match=r"none is left, and none joined in 0\.1 s"):
            placement.place(0)


def test_a_dead_worker_is_noted_and_its_pool_stays() -> None:
    with placed(2, 2) as (placement, _):
        pool = placement.pools[1]
        os.kill(pool.node.actor._node._pools[pool.key].pids()[1], signal.SIGKILL)
        call = NodeCall(pool.key, [], Recorder.share, ())
        assert placement.await_answer(pool, pool.node.actor.do.remote(call)) is None
        assert list(placement.lost) == [3]
        assert placement.pool_of[3] is pool
        assert placement.waits(pool)


def test_a_node_that_cannot_start_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopbackCluster, "is_ready", lambda *_: False)
    with (
        pytest.raises(WorkerError, match=r"node 0: cannot be used \(0 s were allowed\).*--start-timeout-s"),
        placed(1, 1, start_timeout_s=0.0),
    ):
        pass


def test_a_node_that_answers_no_ping_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_module, "POLL_S", 0.01)
    with placed(1, 1) as (placement, cluster):
        placement._step_s = 0.05
        monkeypatch.setattr(cluster, "ready", lambda references, timeout_s: [])
        for _ in range(3):
            placement.wait([], 0.0, list(placement._nodes.values()))
            time.sleep(0.06)
        assert "was lost (TimeoutError)" in placement.lost[0]
