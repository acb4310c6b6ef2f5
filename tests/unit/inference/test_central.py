"""Settings of central inference, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from paceline.inference.central import Central
from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec

SPEC = EnvSpec.of(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(5))
SHAPE = SlotShape(SPEC, n_steps=4, groups=6, group_size=2)


def central(**changes: Any) -> Central:
    return Central(**{"groups": 2, "devices": ("cpu", "cpu", "cpu"), **changes})


def test_an_arena_has_room_for_all_envs_and_a_line_for_each_lane_worker_and_server() -> None:
    fields = {field.name: field.shape for field in central().fields(SHAPE, workers=4)}
    assert fields["central/obs/obs"] == (12, 3)
    assert fields["central/params"] == (12, 5)
    assert fields["inference_requests/lanes"][0] == 6
    assert fields["inference_requests/workers"][0] == 4
    assert fields["inference_requests/servers"][0] == 3


@pytest.mark.parametrize(
    ("single", "expected"),
    [
        (False, [Share(1, 1, 1), Share(1, 2, 2), Share(1, 4, 1)]),
        (True, [Share(1, 1, 1), Share(1, 2, 1), Share(1, 3, 1), Share(1, 4, 1)]),
    ],
)
def test_a_worker_has_a_lane_per_chunk_or_per_group(single: bool, expected: list[Share]) -> None:
    assert central(single=single).lanes(Share(1, first_group=1, groups=4)) == expected


class Channel:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def ask(self, lane: int, server: int) -> None:
        self.asked.append((lane, server))

    def wait(self, lane: int) -> float:
        return 0.0

    def end(self, lane: int, server: int) -> None: ...


def test_an_actor_uses_the_rows_of_its_lane_and_the_server_of_its_chunk() -> None:
    settings = central(devices=("cpu", "cpu"))
    arena = Arena.create(settings.fields(SHAPE, workers=1))
    channel = Channel()
    try:
        for lane in settings.lanes(Share(0, 0, 6)):
            actor = settings.actor(arena, SHAPE, lane)
            actor.channel = channel
            actor.ask({"obs": np.full((4, 3), settings.chunk(lane) + 1.0, np.float32)})
        assert channel.asked == [(0, 0), (2, 1), (4, 0)], "devices take chunks in turn"
        assert arena["central/obs/obs"][:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    finally:
        arena.close()
