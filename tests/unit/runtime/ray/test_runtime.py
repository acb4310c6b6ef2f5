"""The Ray runtime without Ray: nodes are objects of this process that share no memory with the driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.golden import test_dqn as dqn
from tests.golden import test_same_weights as ppo
from tests.inside import inside
from tests.unit.runtime.ray.loopback import LoopbackCluster

from paceline.config.train_config import TrainConfig
from paceline.errors import WorkerError
from paceline.measure.record import Summary
from paceline.runtime.ray.placement import Placement
from paceline.train.run import Run

CASE = "truncation, Box actions, normalisers"
Event = Callable[[Run, LoopbackCluster], None]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[LoopbackCluster]:
    """Replace the Ray cluster of a training by loopback clusters; returns those that were made."""
    clusters: list[LoopbackCluster] = []

    def cluster(*, nodes: int | None, workers_per_node: int | None, **_: Any) -> LoopbackCluster:
        clusters.append(LoopbackCluster(nodes or 1, workers_per_node or 1))
        return clusters[-1]

    monkeypatch.setattr("paceline.train.workers.RayCluster", cluster)
    monkeypatch.setattr("paceline.train.build.require_ray", lambda: None)
    monkeypatch.setattr("paceline.runtime.ray.placement.LOOK_S", 0.0)
    return clusters


def on(nodes: int, workers: int) -> dict[str, Any]:
    return {"runtime": "ray", "ray_address": "auto", "nodes": nodes, "workers_per_node": workers}


def of_ppo(case: str, **more: Any) -> TrainConfig:
    return ppo.config(case, "auto" if "runtime" in more else 0, **more)  # type: ignore[arg-type]


def train(it: TrainConfig, clusters: list[LoopbackCluster], events: dict[int, Event]) -> Summary:
    """Run to the end; `events` are called after the start of these rollouts."""
    with Run(it) as run:
        rollouts, begin, count = inside(run).rollouts, inside(run).rollouts._begin, 0

        def beginning(version: int) -> Any:
            nonlocal count
            count += 1
            submitted = begin(version)
            if count in events:
                events[count](run, clusters[-1])
            return submitted

        rollouts._begin = beginning
        return run.go()


def placement(run: Run) -> Placement:
    found: Placement = run.training.runtime.placement  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("case", "pipeline"), [(CASE, False), ("Dict observations, action masks", True)])
def test_nodes_that_share_no_memory_train_the_same_weights(
    case: str, pipeline: bool, made: list[LoopbackCluster]
) -> None:
    expected = ppo.train(of_ppo(case, pipeline=pipeline))
    found = train(of_ppo(case, pipeline=pipeline, **on(2, 2)), made, {})
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes, found.nodes) == (expected.steps, expected.episodes, 2)
    assert found.bytes_per_step > 0


@pytest.mark.parametrize("case", ["episodes", "self-play"])  # tests/ray has the others
def test_dqn_on_nodes_trains_the_same_weights(case: str, made: list[LoopbackCluster]) -> None:
    expected = dqn.train(dqn.config(dqn.DQN[case], 0))
    found = dqn.train(dqn.config(dqn.DQN[case], "auto", **on(2, 1)))  # type: ignore[arg-type]
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


def test_workers_of_a_lost_node_move_to_others_and_back(made: list[LoopbackCluster]) -> None:
    expected = ppo.train(of_ppo(CASE, iterations=6))
    seen: dict[int, list[tuple[int, int]]] = {}

    def lose(run: Run, cluster: LoopbackCluster) -> None:
        cluster.down.add(1)
        placement(run).pools[1].node.actor.kill()

    def look(run: Run, cluster: LoopbackCluster) -> None:
        seen[len(seen)] = [(pool.node.bundle, len(pool.shares)) for pool in placement(run).pools]

    def join(run: Run, cluster: LoopbackCluster) -> None:
        look(run, cluster)
        cluster.down.clear()
        placement(run).move_back()
        cluster.is_ready(placement(run)._starting[1], 10.0)

    found = train(of_ppo(CASE, iterations=6, **on(3, 2)), made, {2: lose, 3: join, 6: look})
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)
    assert seen == {0: [(0, 2), (0, 1), (2, 1), (2, 2)], 1: [(0, 2), (1, 2), (2, 2)]}
    assert found.restarts == 4, "two workers, twice"


def test_a_worker_that_dies_on_a_node_is_replaced_there(made: list[LoopbackCluster]) -> None:
    expected = ppo.train(of_ppo(CASE))

    def kill(run: Run, cluster: LoopbackCluster) -> None:
        pool = placement(run).pools[1]
        os.kill(pool.node.actor._node._pools[pool.key].pids()[0], signal.SIGKILL)

    found = train(of_ppo(CASE, **on(2, 2)), made, {2: kill})
    assert found.weights_sha256 == expected.weights_sha256
    assert found.restarts == 1


def test_a_run_without_nodes_ends_after_the_start_timeout(made: list[LoopbackCluster]) -> None:
    def lose(run: Run, cluster: LoopbackCluster) -> None:
        cluster.down.add(0)
        placement(run)._start_s = 0.1
        placement(run).pools[0].node.actor.kill()

    with pytest.raises(WorkerError, match=r"nodes: none is left, and none joined in 0.1 s"):
        train(of_ppo(CASE, **on(1, 2)), made, {2: lose})


@pytest.mark.parametrize("algo", ["impala", "dqn"])
def test_async_modes_continue_after_lost_workers_and_nodes(algo: str, made: list[LoopbackCluster]) -> None:
    settings: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 12, "group_size": 2, "n_steps": 16, "algo": algo}
    if algo == "dqn":
        settings |= {"schedule": "async", "learning_starts": 100, "buffer_size": 3000}
    it = TrainConfig.from_flat(**settings, **on(2, 2), n_eval_episodes=0, quiet=True, total_timesteps=4000)
    with Run(it) as run:
        rollouts, next_batch, count = inside(run).rollouts, inside(run).rollouts.next, 0

        def batch(version: int) -> Any:
            nonlocal count
            count += 1
            if count == 3:
                pool = placement(run).pools[0]
                os.kill(pool.node.actor._node._pools[pool.key].pids()[0], signal.SIGKILL)
            if count == 6:
                made[-1].down.add(1)
                placement(run).pools[-1].node.actor.kill()
            return next_batch(version)

        rollouts.next = batch
        summary = run.go()
        assert summary.finished
        while rollouts.restarts.count < 3:  # it may be over before all of it was noticed
            next_batch(inside(run).learner.version)
            rollouts.release()
        if algo == "impala":
            assert summary.lag["max"] <= it.training.max_lag  # type: ignore[attr-defined]
