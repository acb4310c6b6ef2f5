"""Servers that answer inference requests, and the runtime around them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from tests.contract.runtimes import running
from tests.jobs import Recorder

from paceline.collect.inference_client import Mailbox, mailbox_fields
from paceline.errors import WorkerDied
from paceline.inference.chunks import Chunk
from paceline.inference.server import InferenceServer, InlineAsker, ServedRuntime
from paceline.memory.shared import Arena
from paceline.memory.worker_status import heartbeat_field
from paceline.runtime.inference_requests import ANSWERED, ASKED, InferenceRequests, inference_request_fields
from paceline.runtime.protocol import Share, run_all
from paceline.spec import EnvSpec

SPEC = EnvSpec.of(spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(2))


class Doubling:
    """A policy: the parameters are twice the observation, the value is its negative."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self, obs: Mapping[str, NDArray[Any]], /) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return np.repeat(2.0 * obs["obs"], 2, axis=1), -obs["obs"][:, 0]


class Rig:
    """Two lanes of one worker, with one and two envs, in one chunk."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.policy = arena, Doubling()
        self.requests = InferenceRequests(arena)
        self.worker = self.requests.worker_end(0)(arena, 0)
        self.mailbox = Mailbox(arena, SPEC, slice(0, 3))
        self.mailbox.obs["obs"][:, 0] = [1, 2, 3]
        self.chunk = Chunk(np.array([0, 1]), (0, 0), (slice(0, 1), slice(1, 3)), self.mailbox, self.policy)
        self.version, self.renewed = np.array([4]), 0
        self.stopped = False

    def renew(self) -> None:
        self.renewed += 1

    def stop(self) -> None:
        self.stopped = True

    def server(self, *, whole: bool) -> InferenceServer:
        return InferenceServer(
            0,
            self.requests,
            [self.chunk],
            whole=whole,
            version=self.version,
            renew=self.renew,
            stop_workers=self.stop,
        )

    def counters(self) -> NDArray[np.int64]:
        return self.requests.counters(np.array([0, 1]))


@pytest.fixture
def rig() -> Iterator[Rig]:
    arena = Arena.create([*mailbox_fields(SPEC, 3), *inference_request_fields(2, 2, 1), heartbeat_field(2)])
    made = Rig(arena)
    yield made
    made.requests.close()
    arena.close()


def test_only_the_lanes_that_ask_get_results_though_the_whole_chunk_is_computed(rig: Rig) -> None:
    rig.chunk.answer([1])
    assert rig.mailbox.params.tolist() == [[0, 0], [4, 4], [6, 6]]
    assert rig.mailbox.value.tolist() == [0, -2, -3]


def test_a_whole_chunk_waits_for_all_of_its_active_lanes(rig: Rig) -> None:
    server = rig.server(whole=True)
    assert not server.answer(rig.chunk, rig.counters()), "no lane has a request"
    rig.worker.ask(0, 0)
    rig.worker.ask(1, 0)
    assert server.answer(rig.chunk, rig.counters())
    assert rig.counters()[:, ANSWERED].tolist() == [1, 1]
    rig.worker.ask(0, 0)
    assert not server.answer(rig.chunk, rig.counters()), "lane 1 is active and has not asked"
    rig.worker.end(1, 0)
    assert server.answer(rig.chunk, rig.counters())
    assert rig.counters()[:, ANSWERED].tolist() == [2, 1]
    assert rig.policy.calls == 2
    assert rig.renewed == 0, "the runtime renews the weights before each rollout"


def test_an_asynchronous_chunk_answers_at_once_with_the_newest_weights(rig: Rig) -> None:
    server = rig.server(whole=False)
    rig.worker.ask(0, 0)
    rig.worker.ask(1, 0)
    rig.requests.answer(1, 0)
    assert server.answer(rig.chunk, rig.counters())
    assert rig.renewed == 1
    rig.worker.ask(0, 0)
    assert server.answer(rig.chunk, rig.counters())
    assert rig.renewed == 1, "the version has not changed"
    rig.version[0] = 5
    rig.worker.ask(0, 0)
    assert server.answer(rig.chunk, rig.counters())
    assert rig.renewed == 2


def test_a_thread_answers_until_it_is_closed(rig: Rig) -> None:
    server = rig.server(whole=True)
    server.start()
    for number in (5.0, 6.0):
        rig.mailbox.obs["obs"][0] = number
        rig.worker.ask(0, 0)
        assert rig.worker.wait(0) < 5.0
        assert rig.mailbox.params[0].tolist() == [2 * number] * 2
    began = time.perf_counter()
    server.close()
    assert time.perf_counter() - began < 0.9, "it is woken, and does not wait for its timeout"
    assert server.failure is None
    rig.worker.ask(0, 0)
    time.sleep(0.05)
    assert rig.counters()[0, ANSWERED] < rig.counters()[0, ASKED]


def test_a_policy_that_fails_stops_the_workers_and_is_raised_by_the_runtime(rig: Rig) -> None:
    server = rig.server(whole=True)
    rig.policy.error = ArithmeticError("no such action")
    with running("fork") as it:
        lanes = [Share(0, 0, 1), Share(0, 1, 1)]
        served = ServedRuntime(it.runtime, rig.requests, [server], lanes, rig.renew)
        assert run_all(served, Recorder.echo, 1) == [(1,)] * 2
        assert rig.renewed == 1, "before every call to all workers"
        rig.worker.ask(0, 0)
        deadline = time.perf_counter() + 30.0
        while server.failure is None and time.perf_counter() < deadline:
            time.sleep(0.01)
        assert rig.stopped
        with pytest.raises(ArithmeticError, match="no such action"):
            run_all(served, Recorder.echo, 1)
        with pytest.raises(ArithmeticError, match="no such action"):
            run_all(served, Recorder.fail, 0, "raise")  # the workers' errors follow from it
        served.close()
        assert served.pids() == it.runtime.pids()


def test_the_requests_of_a_replaced_worker_are_forgotten(rig: Rig) -> None:
    server = rig.server(whole=True)
    with running("fork") as it:
        lanes = [Share(1, 0, 1), Share(0, 1, 1)]
        served = ServedRuntime(it.runtime, rig.requests, [server], lanes, rig.renew)
        server.close()  # no server answers in this test
        rig.worker.ask(0, 0)
        rig.worker.ask(1, 0)
        with pytest.raises(WorkerDied):
            run_all(served, Recorder.fail, 1, "kill")
        assert served.respawn(1, Recorder.echo, "new") == ("new",)
        assert rig.counters()[:, ASKED].tolist() == [0, 1], "lane 0 belongs to worker 1"
        served.close()


def test_without_workers_a_wait_computes_the_answer(rig: Rig) -> None:
    channel = InlineAsker([rig.chunk], rig.renew, rig.version)
    channel.ask(1, 0)
    assert rig.policy.calls == 0
    assert channel.wait(1) == 0.0
    assert rig.mailbox.params.tolist() == [[0, 0], [4, 4], [6, 6]]
    channel.wait(0)
    assert (rig.policy.calls, rig.renewed) == (2, 1)
    rig.version[0] += 1
    channel.wait(0)
    assert rig.renewed == 2
    channel.end(0, 0)
