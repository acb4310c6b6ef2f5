"""New rows of the replay buffer: heads, episodes, samplers, alignment and checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.memory.replays import GAMMA, Story, arrays, spec

from paceline.measure.episodes import EpisodeTracker
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape
from paceline.memory.sampling import UniformSampler
from paceline.train.replay_ingest import ReplayIngest

GROUPS, SIZE = 3, 2


class NotedGroups(UniformSampler):
    def __init__(self, replay: Replay) -> None:
        super().__init__(replay)
        self.groups: list[int] = []

    def rows_added(self, group: int) -> None:
        self.groups.append(group)

    def state(self) -> dict[str, Any]:
        return {"groups": np.array(self.groups)}

    def load(self, state: dict[str, Any]) -> None:
        self.groups = state["groups"].tolist()


class Stage:
    """A replay buffer of three groups; `play` writes rows without moving the head of the buffer."""

    def __init__(self, *, save_replay: bool = True) -> None:
        self.shape = ReplayShape(spec=spec(), rows=32, groups=GROUPS, group_size=SIZE)
        memory = arrays(self.shape)
        self.replay = Replay(memory, self.shape, gamma=GAMMA)
        # The story advances a replay buffer of its own, with views of the same rows.
        self.story = Story(self.shape, Replay(memory, self.shape, gamma=GAMMA), memory, 0)
        self.sampler, self.tracker = NotedGroups(self.replay), EpisodeTracker(GROUPS * SIZE)
        self.ingest = ReplayIngest(self.replay, self.sampler, self.tracker, save_replay=save_replay)

    def play(self, *rows: int) -> None:
        for group, count in enumerate(rows):
            self.story.play(group, count)

    def ended(self) -> int:
        return sum(step["ended"] for steps in self.story.steps for step in steps if step["valid"])


@pytest.mark.parametrize("rows", [(5, 5, 5), (5, 3, 3), (4, 1, 6)])
def test_heads_samplers_steps_and_episodes_follow_the_new_rows(rows: tuple[int, ...]) -> None:
    stage = Stage()
    stage.play(*rows)
    finished = stage.ingest.advance(0, rows)
    assert stage.replay.head.tolist() == list(rows)
    assert sorted(stage.sampler.groups) == [0, 1, 2]
    assert stage.tracker.steps == sum(step["valid"] for steps in stage.story.steps for step in steps)
    assert len(finished) == stage.tracker.episodes == stage.ended() > 0


def test_rows_of_a_worker_start_at_its_first_group() -> None:
    stage = Stage()
    stage.play(0, 4, 7)
    stage.ingest.advance(1, [4, 7])
    assert stage.replay.head.tolist() == [0, 4, 7]


def test_aligned_groups_have_the_largest_head_and_no_more_valid_rows() -> None:
    stage = Stage()
    stage.play(6, 2, 4)
    stage.ingest.advance(0, [6, 2, 4])
    stored = stage.replay.valid(np.arange(6 * GROUPS * SIZE)).sum()
    stage.sampler.groups.clear()
    stage.ingest.align([0, 1])
    assert stage.replay.head.tolist() == [6, 6, 4]
    assert stage.sampler.groups == [1]
    assert stage.replay.valid(np.arange(6 * GROUPS * SIZE)).sum() == stored


def test_forgotten_episodes_do_not_count_their_steps() -> None:
    stage = Stage()
    stage.tracker.update(*(np.full((3, GROUPS * SIZE), value) for value in (1.0, False, False, True)))
    stage.ingest.forget_episodes([0, 1])
    last = [np.zeros((1, GROUPS * SIZE), bool) for _ in range(3)]
    last[0][:] = last[2][:] = True
    finished = stage.tracker.update(np.ones((1, GROUPS * SIZE)), *last)
    assert finished.returns.tolist() == [1, 1, 4, 4, 4, 4]


def test_a_checkpoint_has_the_replay_buffer_and_the_sampler() -> None:
    stage, other = Stage(), Stage()
    stage.play(6, 6, 6)
    stage.ingest.advance(0, [6, 6, 6])
    other.ingest.load(stage.ingest.state())
    assert (other.replay.stored, other.sampler.groups) == (stage.replay.stored, stage.sampler.groups)


def test_without_save_replay_a_checkpoint_has_only_the_heads() -> None:
    stage, other = Stage(save_replay=False), Stage(save_replay=False)
    stage.play(6, 6, 6)
    stage.ingest.advance(0, [6, 6, 6])
    state = stage.ingest.state()
    assert list(state) == ["head"]
    other.ingest.load(state)
    assert (other.replay.head.tolist(), other.replay.stored) == ([6, 6, 6], 0)
