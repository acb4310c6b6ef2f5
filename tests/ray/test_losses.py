"""Loss of nodes, node actors and drivers on a Ray cluster, and nodes that join."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.fault import modes, test_starts
from tests.golden import test_same_weights as ppo
from tests.inside import inside
from tests.ray.conftest import CPUS, ours
from tests.ray.test_same_weights import RAY, of_ppo, on

from paceline.config.train_config import TrainConfig
from paceline.measure.record import Summary
from paceline.train import checkpoint
from paceline.train.run import Run, open_folder

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
EVERYONE = 4
"""The session's nodes, and the one that is lost."""
CASE = "truncation, Box actions, normalisers"


@contextmanager
def one_more(cluster: Any) -> Iterator[Any]:
    """An additional cluster node, removed at the end of the context."""
    node = cluster.add_node(num_cpus=CPUS, object_store_memory=100 * 2**20)
    try:
        yield node
    finally:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def take_away(cluster: Any, node: Any, run: Run) -> None:
    """Lose a node, and wait until its actor is gone: for a moment it answers without its node."""
    actors = [pool.node.about["pid"] for pool in run.training.runtime.placement.pools]  # type: ignore[attr-defined]
    cluster.remove_node(node, allow_graceful=False)
    deadline = time.perf_counter() + 60
    while all(_lives(pid) for pid in actors):
        assert time.perf_counter() < deadline
        time.sleep(0.1)


def train(it: TrainConfig, before: dict[int, Callable[[Run], None]]) -> Summary:
    """Run to the end; something happens when a rollout has begun."""
    folder = open_folder(it) if it.run.output_dir else None
    with Run(it, folder=folder) as run:
        rollouts, begin, count = inside(run).rollouts, inside(run).rollouts._begin, 0

        def beginning(version: int) -> Any:
            nonlocal count
            count += 1
            submitted = begin(version)
            if count in before:
                before[count](run)
            return submitted

        rollouts._begin = beginning
        return run.go()


@pytest.mark.parametrize("pipeline", [False, True])
def test_the_nodes_that_are_left_take_over_and_a_new_one_joins(cluster: Any, pipeline: bool, tmp_path: Path) -> None:
    expected = ppo.train(of_ppo(CASE, iterations=8, pipeline=pipeline))
    seen: list[list[int]] = []
    more: Any = None

    def lose(run: Run) -> None:
        take_away(cluster, node, run)

    def look(run: Run) -> None:
        seen.append([len(pool.shares) for pool in run.training.runtime.placement.pools])  # type: ignore[attr-defined]

    def join(run: Run) -> None:
        look(run)
        nonlocal more
        more = cluster.add_node(num_cpus=CPUS, object_store_memory=100 * 2**20)
        placement = run.training.runtime.placement  # type: ignore[attr-defined]
        # The actor of the new node takes a few seconds: as if the rollouts before it had been that long.
        deadline = time.perf_counter() + 60
        while not placement._starting or not placement._cluster.is_ready(next(iter(placement._starting.values())), 0.2):
            placement._looked = 0.0
            if not placement._starting:
                placement.move_back()
            where = [(pool.bundle, pool.node.bundle) for pool in placement.pools]
            assert time.perf_counter() < deadline, (
                where,
                placement._starting,
                [placement._cluster.placed(b) for b in range(4)],
            )
        placement._looked = 0.0

    node = cluster.add_node(num_cpus=CPUS, object_store_memory=100 * 2**20)
    try:
        it = of_ppo(
            CASE, iterations=8, pipeline=pipeline, output_dir=tmp_path / "run", save_freq=300, **on(EVERYONE, 1)
        )
        found = train(it, {3: lose, 4: look, 5: join, 6: look, 7: look})
    finally:
        for one in (node, more):
            if one is not None and one in cluster.worker_nodes:
                cluster.remove_node(one)
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)
    assert found.restarts == 2, "its worker was replaced when it was lost, and again when it moved"
    saved = checkpoint.steps(tmp_path / "run" / "checkpoints")
    assert len(saved) > 1
    log = (tmp_path / "run" / "train.log").read_text()
    assert "was lost" in log
    assert "which has joined" in log


def test_waiting_for_a_node(cluster: Any) -> None:
    expected = ppo.train(of_ppo(CASE))
    node = cluster.add_node(num_cpus=CPUS, object_store_memory=100 * 2**20)
    later: list[Any] = []

    def lose(run: Run) -> None:
        take_away(cluster, node, run)
        placement = run.training.runtime.placement  # type: ignore[attr-defined]
        placed = placement._cluster.placed

        def watched(bundle: int) -> bool:
            if not placed(bundle) and not later:
                later.append(cluster.add_node(num_cpus=CPUS, object_store_memory=100 * 2**20))
            answer: bool = placed(bundle)
            return answer

        placement._cluster.placed = watched

    try:
        found = train(of_ppo(CASE, on_node_loss="wait", **on(EVERYONE, 1)), {2: lose})
    finally:
        for one in (node, *later):
            if one in cluster.worker_nodes:
                cluster.remove_node(one)
    assert later, "it was waited for"
    assert found.weights_sha256 == expected.weights_sha256


@pytest.mark.parametrize("algo", ["impala", "dqn"])
def test_asynchronous_modes_go_on_without_a_node(cluster: Any, algo: str) -> None:
    settings = {"env": "CartPole-v1", "n_envs": 12, "group_size": 2, "n_steps": 16, "n_eval_episodes": 0, "algo": algo}
    if algo == "dqn":
        settings |= {"schedule": "async", "learning_starts": 100, "buffer_size": 3000}
    with one_more(cluster) as node:
        it = TrainConfig.from_flat(**settings, **on(EVERYONE, 1), quiet=True, total_timesteps=6000)
        with Run(it) as run:
            rollouts, next_batch, count = inside(run).rollouts, inside(run).rollouts.next, 0

            def batch(version: int) -> Any:
                nonlocal count
                count += 1
                if count == 5:
                    cluster.remove_node(node, allow_graceful=False)
                return next_batch(version)

            rollouts.next = batch
            summary = run.go()
            # The run may end before the driver has noticed the loss.
            while not rollouts.restarts.count:
                next_batch(inside(run).learner.version)
                rollouts.release()
            after = next_batch(inside(run).learner.version)
    assert summary.finished
    assert rollouts.restarts.count == 1
    assert after


def program(*flags: str) -> list[str]:
    return [sys.executable, "-m", "paceline", "train", "ppo", "--env", "CartPole-v1", "--runtime", "ray", *flags]


@contextmanager
def a_run(folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run of its own in another process, once it has a checkpoint."""
    command = program("--output-dir", str(folder), "--save-freq", "4096", "--total-timesteps", "1e9", "--quiet", *flags)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.perf_counter() + 90
            while not checkpoint.steps(folder / "checkpoints"):
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
                assert time.perf_counter() < deadline
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("where", ["cluster", "here"])
def test_a_driver_that_is_killed_leaves_nothing_behind(cluster: Any, where: str, tmp_path: Path) -> None:
    before = set(ours())
    flags = ("--ray-address", cluster.address, "--nodes", "2") if where == "cluster" else ()
    with a_run(tmp_path / "run", *flags, "--workers-per-node", "1") as process:
        assert set(ours()) - before
        tree = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        if where == "here":
            sockets = _listening({process.pid, *tree})
            assert sockets
            assert all(ip_address(found).is_loopback or "127.0.0.1" in found for found in sockets), sockets
        process.send_signal(signal.SIGKILL)
        process.wait()
        _gone(lambda: set(ours()) - before, 60.0)
        _gone(lambda: {pid for pid in tree if _lives(pid)}, 60.0)
    found = checkpoint.find(tmp_path / "run", resumable=True)
    it = TrainConfig.from_run(
        tmp_path / "run", resume=True, total_timesteps=checkpoint.load(found).meta["steps"] + 1, runtime="local",
        ray_address=None, nodes=None, workers_per_node=None, num_workers=0,
    )  # fmt: skip
    with Run(it, folder=open_folder(it)) as run:
        assert run.go().finished


def _gone(who: Callable[[], set[int]], within_s: float) -> None:
    deadline = time.perf_counter() + within_s
    while left := who():
        assert time.perf_counter() < deadline, [psutil.Process(pid).cmdline()[:1] for pid in left]
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    """Agents of Ray are left out: they look for a server that is gone for a minute, and end then."""
    try:
        process = psutil.Process(pid)
        agent = process.cmdline()[:1] in (["ray::DashboardAgent"], ["ray::RuntimeEnvAgent"])
        return process.status() != psutil.STATUS_ZOMBIE and not agent
    except psutil.NoSuchProcess:
        return False


def _listening(pids: set[int]) -> set[str]:
    found = set()
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids:
            found.add(connection.laddr.ip)  # type: ignore[union-attr]
    return found


def test_a_first_interrupt_saves_and_ends_a_run(tmp_path: Path) -> None:
    with a_run(tmp_path / "run", "--workers-per-node", "1") as process:
        os.killpg(os.getpgid(process.pid), 0)  # it shares our group, as with a terminal; the signal goes to it alone
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert checkpoint.find(tmp_path / "run", resumable=True).is_dir()


def test_a_second_interrupt_does_not_wait_for_the_rollout_and_saves_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    slow = ("--env", "paceline/Busy-v0", "--env-kwargs", "sleep_ms=20", "--n-steps", "4096", "--workers-per-node", "1")
    command = program("--output-dir", str(run), *slow, "--quiet")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.perf_counter() + 90
            while not (run / "train.log").is_file() or "run folder" not in (run / "train.log").read_text():
                assert process.poll() is None
                assert time.perf_counter() < deadline
                time.sleep(0.1)
            time.sleep(2.0)  # into the first rollout, which takes minutes
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert any("stopping after this rollout" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert checkpoint.find(run, resumable=True).name == checkpoint.step_name(0)


def test_unreachable_ray_address_fails_before_anything_starts(tmp_path: Path) -> None:
    command = program("--ray-address", "127.0.0.1:1", "--output-dir", str(tmp_path / "run"))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert "ray_address='127.0.0.1:1': no answer" in ended.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"nodes": 9}, r"nodes=9: the Ray cluster has 3 with 1 CPU\(s\) or more"),
        ({"workers_per_node": 6}, r"nodes=1: the Ray cluster has 0 with 6 CPU\(s\) or more"),
    ],
)
def test_requesting_more_resources_than_available_is_an_error(cluster: Any, flags: dict[str, int], text: str) -> None:
    from paceline.errors import ConfigError

    with pytest.raises(ConfigError, match=text), Run(of_ppo("CartPole", **RAY, **flags)):
        pass


def test_a_worker_that_is_killed_while_it_starts_is_replaced_on_its_node(cluster: Any, tmp_path: Path) -> None:
    env = test_starts.flawed(tmp_path, test_starts.killed)
    found = test_starts.go(modes.config("parallel", env, num_workers="auto", **on(1, 2)))
    assert (found.restarts, found.restarted) == (2, 0)
    assert found.weights_sha256 == test_starts.go(modes.config("parallel", env)).weights_sha256
