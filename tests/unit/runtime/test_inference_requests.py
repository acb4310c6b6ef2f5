"""Requests of workers for central inference."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT, STOP, heartbeat_field
from paceline.runtime import inference_requests
from paceline.runtime.inference_requests import (
    ACTIVE,
    ANSWERED,
    ASKED,
    InferenceRequester,
    InferenceRequests,
    inference_request_fields,
)


def test_the_wait_for_an_answer_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena.create([*inference_request_fields(1, 1, 1), heartbeat_field(1)])
    driver = InferenceRequests(arena)
    channel: Any = driver.worker_end(0)(arena, 0)

    class Answers:
        def wait(self, _seconds: float) -> None:
            driver.answer(0, 0)

    monkeypatch.setattr(channel, "_watch", Answers())
    monkeypatch.setattr(inference_requests, "perf_counter", iter([10.0, 12.5]).__next__)
    channel.ask(0, 0)
    assert channel.wait(0) == 2.5
    driver.close()
    arena.close()


@pytest.fixture
def ends() -> Iterator[tuple[InferenceRequests, InferenceRequester, Arena]]:
    arena = Arena.create([*inference_request_fields(3, 1, 1), heartbeat_field(1)])
    driver = InferenceRequests(arena)
    yield driver, driver.worker_end(0)(arena, 0), arena
    driver.close()
    driver.close()  # idempotent
    arena.close()


LANES = np.arange(3)
Ends = tuple[InferenceRequests, InferenceRequester, Arena]


def test_requests_and_answers_are_counted_per_lane(ends: Ends) -> None:
    driver, worker, _ = ends
    worker.ask(1, 0)
    counters = driver.counters(LANES)
    assert counters[:, ASKED].tolist() == counters[:, ACTIVE].tolist() == [0, 1, 0]
    assert counters[:, ANSWERED].tolist() == [0, 0, 0]
    driver.answer(1, 0)
    assert worker.wait(1) < 1.0
    assert driver.counters(LANES)[1].tolist() == [1, 1, 1]
    worker.end(1, 0)
    assert driver.counters(LANES)[:, ACTIVE].tolist() == [0, 0, 0]
    assert counters[1].tolist() == [1, 0, 1], "counters are copies"


def test_a_server_sleeps_until_a_lane_changes(ends: Ends) -> None:
    driver, worker, _ = ends
    seen = driver.counters(LANES)
    thread = threading.Thread(target=driver.sleep, args=(0, LANES, seen))
    thread.start()
    time.sleep(0.05)
    began = time.perf_counter()
    worker.ask(0, 0)
    thread.join()
    assert time.perf_counter() - began < 0.5, "the signal, not the timeout of a second"
    began = time.perf_counter()
    driver.sleep(0, LANES, seen)
    assert time.perf_counter() - began < 0.5, "a change before the sleep is noticed"


def test_a_worker_sleeps_until_its_answer(ends: Ends) -> None:
    driver, worker, _ = ends
    worker.ask(2, 0)
    waited: list[float] = []
    thread = threading.Thread(target=lambda: waited.append(worker.wait(2)))
    thread.start()
    time.sleep(0.1)
    began = time.perf_counter()
    driver.answer(2, 0)
    thread.join()
    assert time.perf_counter() - began < 0.5
    assert waited[0] >= 0.09


def test_a_waiting_worker_sends_heartbeats_for_a_limited_time(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, worker, arena = ends
    monkeypatch.setattr(inference_requests, "CHECK_S", 0.01)
    monkeypatch.setattr(inference_requests, "LONGEST_WAIT_S", 0.05)
    worker.ask(0, 0)
    thread = threading.Thread(target=worker.wait, args=(0,))
    thread.start()
    time.sleep(0.5)
    arena["heartbeat"][0, STOP] = 1
    thread.join()
    assert 1 <= arena["heartbeat"][0, BEAT] <= 5
    assert driver.counters(LANES)[0, ANSWERED] == 0, "a stop ends the wait without an answer"


def test_a_replaced_worker_has_no_open_requests(ends: Ends) -> None:
    driver, worker, _ = ends
    worker.ask(0, 0)
    worker.ask(1, 0)
    driver.forget(np.array([1]), 0)
    assert driver.counters(LANES)[:, ASKED].tolist() == [1, 0, 0]
    assert driver.counters(LANES)[:, ACTIVE].tolist() == [1, 0, 0]
