"""`Flights`: which steps run, wait in a queue, or are done, on a simulated channel."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from paceline.runtime.protocol import Share
from paceline.vector.flights import Flights, by_worker


class Channel:
    """Two workers with envs 0-2 and 3-4. A worker is done when the test says so."""

    def __init__(self) -> None:
        self.memory = {"due": np.zeros(5, np.uint8)}
        self.shares = [Share(0, 0, 3), Share(1, 3, 2)]
        self.begun: list[tuple[int, list[int], Any]] = []
        self.done: list[int] = []
        self.messages: dict[int, list[Any]] = {}

    def begin(self, worker: int, order: Any) -> None:
        share = self.shares[worker]
        own = self.memory["due"][share.first_group : share.first_group + share.groups]
        self.begun.append((worker, (share.first_group + np.flatnonzero(own)).tolist(), order))

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:
        ready, self.done = [worker for worker in self.done if worker in workers], []
        assert len(ready) >= at_least, f"{doing}: would block"
        return ready

    def news(self, worker: int) -> list[Any]:
        return self.messages.pop(worker, [])


def make() -> tuple[Channel, Flights]:
    channel: Any = Channel()
    return channel, Flights(channel, 5)


def test_an_idle_worker_begins_at_once_with_the_envs_that_are_due() -> None:
    channel, flights = make()
    flights.send(0, [0, 2], None)
    assert channel.begun == [(0, [0, 2], None)]
    assert flights.out == {0, 2}
    channel.done = [0]
    assert flights.take(2, "step") == [0, 2]
    assert flights.out == frozenset()


def test_steps_for_a_busy_worker_are_queued_and_merged_unless_they_have_orders() -> None:
    channel, flights = make()
    flights.send(0, [1], None)
    flights.send(0, [2], None)
    flights.send(0, [0], None)
    assert channel.begun == [(0, [1], None)]
    channel.done = [0]
    assert flights.take(1, "step") == [1]
    assert channel.begun[1:] == [(0, [0, 2], None)], "both in one wake-up"
    flights.send(0, [1], "reset")
    channel.done = [0]
    assert flights.take(1, "step") == [0, 2]
    flights.send(0, [2], None)
    assert channel.begun[2:] == [(0, [1], "reset")]
    channel.done = [0]
    assert flights.take(1, "step") == [1]
    assert channel.begun[3:] == [(0, [2], None)], "not merged: the order of the reset is not for env 2"


def test_a_queued_reset_is_not_merged_with_a_queued_step() -> None:
    channel, flights = make()
    for env, order in ((0, None), (1, "reset"), (2, None)):
        flights.send(0, [env], order)
    for number, (env, order) in enumerate([(0, None), (1, "reset"), (2, None)]):
        assert channel.begun[number:] == [(0, [env], order)]
        channel.done = [0]
        assert flights.take(1, "step") == [env]


def test_all_envs_that_are_ready_are_returned_in_order() -> None:
    channel, flights = make()
    flights.send_all()
    assert channel.begun == [(0, [0, 1, 2], None), (1, [3, 4], None)]
    channel.done = [1, 0]
    assert flights.take(1, "step") == [0, 1, 2, 3, 4]


def test_flags_of_all_envs_are_set_again_after_a_partial_step() -> None:
    channel, flights = make()
    flights.send_all()
    channel.done = [0, 1]
    flights.take_all("step")
    flights.send(1, [4], None)
    channel.done = [1]
    flights.take(1, "step")
    flights.send_all()
    assert channel.begun[-1] == (1, [3, 4], None)


def test_infos_belong_to_the_last_result_and_variable_size_parts_stay() -> None:
    channel, flights = make()
    flights.send_all()
    channel.done, channel.messages = [0, 1], {1: [(3, ({"x": 1},), ("text",))]}
    flights.take_all("step")
    assert flights.infos == {3: ({"x": 1},)}
    assert flights.loose == {3: ("text",)}
    flights.send_all()
    channel.done = [0, 1]
    flights.take_all("step")
    assert flights.infos == {}
    assert flights.loose == {3: ("text",)}


def test_positions_by_worker() -> None:
    assert by_worker([0, 0, 0, 1, 1], [1, 2, 4]) == {0: [0, 1], 1: [2]}
