"""The replay against a slow copy of its definition: lists of whole transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.memory.replay import Replay
from paceline.memory.replay_rows import TRUNCATED, VALID, ReplayShape, ReplayWriter, rows_for
from paceline.memory.rows import Row
from paceline.memory.sampling import PrioritisedSampler, Sampler, UniformSampler
from paceline.spec import MASK_KEY, PLAIN, EnvSpec

GAMMA = 0.9


def spec(*, masked: bool = True, stack: int = 1) -> EnvSpec:
    return EnvSpec.of(spaces.Box(-1e6, 1e6, (2 * stack,), np.float32), spaces.Discrete(3), masked=masked)


def arrays(shape: ReplayShape) -> dict[str, NDArray[Any]]:
    return {field.name: np.zeros(field.shape, field.dtype) for field in shape.fields()}


class Story:
    """Envs that do something at random, written into a replay and remembered step by step."""

    def __init__(self, shape: ReplayShape, replay: Replay, memory: dict[str, NDArray[Any]], seed: int) -> None:
        self.shape, self.replay, self.rng = shape, replay, np.random.default_rng(seed)
        self.writers = [ReplayWriter(memory, shape, group, 1) for group in range(shape.groups)]
        n = shape.n_envs
        self.count = np.zeros(n, np.int64)
        self.frames: list[list[NDArray[Any]]] = [[self.frame(env)] for env in range(n)]
        self.masks = [self.mask() for _ in range(n)]
        self.steps: list[list[dict[str, Any]]] = [[] for _ in range(n)]  # by env, in time

    def frame(self, env: int) -> NDArray[Any]:
        self.count[env] += 1
        return np.array([env, self.count[env]], np.float32)

    def mask(self) -> NDArray[np.bool_]:
        mask = self.rng.random(3) < 0.6
        mask[self.rng.integers(3)] = True
        return mask

    def obs(self, env: int) -> NDArray[Any]:
        k, frames = self.shape.frame_stack, self.frames[env]
        return np.concatenate(
            [frames[max(0, len(frames) - k + j)] if len(frames) - k + j >= 0 else frames[0] for j in range(k)]
        )

    def play(self, group: int, rows: int) -> None:
        size, writer, start = self.shape.group_size, self.writers[group], int(self.replay.head[group])
        envs = range(group * size, (group + 1) * size)

        def shown() -> Row:
            row = Row.blank(self.shape.spec, size)
            for i, env in enumerate(envs):
                row.obs[PLAIN][i] = self.obs(env)
                if row.mask is not None:
                    row.mask[i] = self.masks[env]
            return row

        def age() -> NDArray[np.int64]:
            return np.array([len(self.frames[env]) - 1 for env in envs])

        writer.show(start, shown(), age())
        for t in range(start, start + rows):
            row, finals = shown(), []
            for i, env in enumerate(envs):
                row.action[i], row.reward[i] = self.rng.integers(3), self.rng.normal()
                ends = self.rng.random()
                row.terminated[i], row.truncated[i] = ends < 0.15, 0.15 <= ends < 0.3
                row.valid[i] = self.rng.random() < 0.9
                if not row.valid[i]:
                    row.terminated[i] = row.truncated[i] = False
                before = self.obs(env)
                self.frames[env].append(self.frame(env))
                self.masks[env] = self.mask()
                self.steps[env].append(
                    {
                        "row": t, "obs": before, "action": int(row.action[i]), "reward": float(row.reward[i]),
                        "terminated": bool(row.terminated[i]), "ended": bool(row.terminated[i] or row.truncated[i]),
                        "valid": bool(row.valid[i]), "next_obs": self.obs(env), "next_mask": self.masks[env],
                    }
                )  # fmt: skip
                if row.terminated[i] or row.truncated[i]:
                    if not row.terminated[i]:
                        finals.append((i, {PLAIN: self.obs(env), MASK_KEY: self.masks[env]}))
                    self.frames[env], self.masks[env] = [self.frame(env)], self.mask()
            writer.write(t, row)
            for i, obs in finals:
                writer.add_final(t, i, obs)
            writer.show(t + 1, shown(), age())
        self.replay.advance(group, group + 1, rows)

    def expected(self, env: int, row: int, multi_step: int) -> dict[str, Any]:
        steps = self.steps[env]
        first = steps[row]
        total, discount = 0.0, 1.0
        for step in steps[row : row + multi_step]:
            total += discount * step["reward"]
            discount *= GAMMA
            last = step
            if step["ended"]:
                break
        return {**first, "return": total, "discount": 0.0 if last["terminated"] else discount, "last": last}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    size=st.integers(1, 3),
    rows=st.integers(8, 20),
    multi_step=st.integers(1, 3),
    stack=st.sampled_from([1, 3]),
    masked=st.booleans(),
    stints=st.lists(st.integers(1, 4), min_size=1, max_size=12),
)
def test_transitions_are_what_was_played(
    seed: int, groups: int, size: int, rows: int, multi_step: int, stack: int, masked: bool, stints: list[int]
) -> None:
    shape = ReplayShape(
        spec=spec(masked=masked, stack=stack), rows=rows, groups=groups, group_size=size, frame_stack=stack
    )
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA, multi_step=multi_step)
    story = Story(shape, replay, memory, seed)
    for count in stints:
        for group in range(groups):  # groups need not be equally far
            story.play(group, 1 + (count + group) % 4)
    if not replay.stored:
        return
    for group in range(groups):
        for env in range(group * size, (group + 1) * size):
            for row in range(int(replay.low[group]), int(replay.high[group])):
                item = np.array([row % rows * shape.n_envs + env])
                found, wanted = replay.gather(item), story.expected(env, row, multi_step)
                np.testing.assert_array_equal(found.obs[PLAIN][0], wanted["obs"])
                assert int(found.action[0]) == wanted["action"]
                assert float(found.reward[0]) == pytest.approx(wanted["return"], abs=1e-5)
                assert float(found.discount[0]) == pytest.approx(wanted["discount"], abs=1e-6)
                assert bool(replay.valid(item)[0]) == wanted["valid"]
                if wanted["discount"]:
                    np.testing.assert_array_equal(found.next_obs[PLAIN][0], wanted["last"]["next_obs"])
                    if masked:
                        np.testing.assert_array_equal(found.next_mask[0], wanted["last"]["next_mask"])  # type: ignore[index]


def filled(*, rows: int = 12, stints: int = 6, margin: int = 0, size: int = 2) -> tuple[Replay, Story]:
    shape = ReplayShape(spec=spec(), rows=rows, groups=2, group_size=size)
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA, margin=margin)
    story = Story(shape, replay, memory, 0)
    for _ in range(stints):
        story.play(0, 3)
        story.play(1, 2)
    return replay, story


def cut(story: Story, env: int) -> None:
    size = story.shape.group_size
    story.writers[env // size].cut(int(story.replay.head[env // size]), env % size)


@pytest.mark.parametrize("stints", [1, 3, 9])
def test_only_rows_that_are_whole_and_stay_are_drawn_and_all_of_them(stints: int) -> None:
    replay, story = filled(stints=stints, margin=3)
    samplers: list[Sampler] = [UniformSampler(replay), PrioritisedSampler(replay, 0.5)]
    for group in range(2):
        samplers[1].took_in(group)
    able = {
        row % 12 * 4 + env
        for group in range(2)
        for env in (2 * group, 2 * group + 1)
        for row in range(int(replay.low[group]), int(replay.high[group]))
        if story.steps[env][row]["valid"]
    }
    # What is being written, and what the row before it needs, is left alone.
    assert (replay.low >= replay.head + 3 + 1 - 12).all()
    assert (replay.high <= replay.head).all()
    for sampler in samplers:
        item, _ = sampler.draw(np.random.default_rng(0), 4000, 1.0)
        assert set(item.tolist()) == able


def test_priorities_decide_how_often_and_weights_make_it_good() -> None:
    replay, _ = filled()
    sampler = PrioritisedSampler(replay, 1.0)
    for group in range(2):
        sampler.took_in(group)
    some = np.unique(sampler.draw(np.random.default_rng(0), 4000, 1.0)[0])
    sampler.surprised(some, np.linspace(0.1, 2.0, len(some), dtype=np.float32))
    item, weight = sampler.draw(np.random.default_rng(1), 100_000, 1.0)
    often = np.array([np.mean(item == one) for one in some])
    np.testing.assert_allclose(
        often, np.linspace(0.1, 2.0, len(some)) / np.linspace(0.1, 2.0, len(some)).sum(), atol=2e-3
    )
    by_item = dict(zip(item.tolist(), weight.tolist(), strict=True))
    np.testing.assert_allclose(
        [by_item[i] * o for i, o in zip(some.tolist(), often, strict=True)], by_item[some[0]] * often[0], rtol=0.1
    )
    assert max(weight) == 1.0


def test_what_is_overwritten_loses_its_priority() -> None:
    replay, story = filled(stints=1)
    sampler = PrioritisedSampler(replay, 1.0)
    for group in range(2):
        sampler.took_in(group)
    for _ in range(20):
        for group, rows in ((0, 3), (1, 2)):
            start = int(replay.head[group])
            story.play(group, rows)
            sampler.took_in(group)
            item, _ = sampler.draw(np.random.default_rng(start), 500, 1.0)
            group_of = item % 4 // 2
            back = (replay.head[group_of] - 1 - item // 4) % 12
            assert (back < (replay.head - replay.low)[group_of]).all()


def test_a_lost_episode_ends_as_a_truncation_with_what_it_showed_last() -> None:
    replay, story = filled(stints=2)
    env, head = 1, int(replay.head[0])
    story.steps[env][head - 1].update(ended=False, terminated=False, valid=True)
    replay._arrays["flags"][(head - 1) % 12, env] = VALID
    shown, mask = replay.shown(np.array([env]))
    cut(story, env)
    found = replay.gather(np.array([(head - 1) % 12 * 4 + env]))
    np.testing.assert_array_equal(found.next_obs[PLAIN], shown[PLAIN])
    np.testing.assert_array_equal(found.next_mask, mask)
    assert float(found.discount[0]) == pytest.approx(GAMMA)
    # It stays so when another episode begins there, and a second cut changes nothing.
    replay._arrays["obs/obs"][head % 12, env] = -7
    cut(story, env)
    np.testing.assert_array_equal(replay.gather(np.array([(head - 1) % 12 * 4 + env])).next_obs[PLAIN], shown[PLAIN])


def test_a_truncation_whose_last_observation_is_in_the_next_row_is_kept_by_a_cut() -> None:
    """So it is with vector envs that reset in the step after."""
    replay, story = filled(stints=2)
    env, head = 2, int(replay.head[1])
    replay._arrays["flags"][(head - 1) % 12, env] = VALID | TRUNCATED
    shown, _ = replay.shown(np.array([env]))
    cut(story, env)
    replay._arrays["obs/obs"][head % 12, env] = -7  # another episode begins there
    found = replay.gather(np.array([(head - 1) % 12 * 4 + env]))
    np.testing.assert_array_equal(found.next_obs[PLAIN], shown[PLAIN])


@pytest.mark.parametrize("stack", [1, 3])
def test_a_replay_that_begins_in_the_middle_has_nothing_of_before(stack: int) -> None:
    shape = ReplayShape(spec=spec(stack=stack), rows=12, groups=2, group_size=2, frame_stack=stack)
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA)
    replay.begin_at(np.array([30, 41]))
    assert replay.stored == 0
    story = Story(shape, replay, memory, 0)
    story.play(0, 5)
    story.play(1, 5)
    assert replay.low.tolist() == [30 + stack - 1, 41 + stack - 1]
    assert replay.high.tolist() == [35, 46]


def test_only_rows_that_are_there_are_drawn_though_all_heads_are_equal() -> None:
    shape = ReplayShape(spec=spec(), rows=64, groups=2, group_size=2)
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA)
    replay.begin_at(np.array([30, 35]))
    story = Story(shape, replay, memory, 0)
    story.play(0, 10)
    story.play(1, 5)
    replay.all_valid = True  # then nobody looks
    item, _ = UniformSampler(replay).draw(np.random.default_rng(0), 1000, 0.0)
    group, row = item % 4 // 2, item // 4
    assert row[group == 0].min() < 35 <= row[group == 1].min()


def test_a_group_is_padded_to_the_row_of_another_and_shows_there_what_it_showed() -> None:
    replay, story = filled()
    before = int(replay.head.max()) + 5
    everyone = np.arange(replay.shape.n_envs)
    shown, mask = replay.shown(everyone)
    for group in range(2):
        replay.pad(group, before)
    assert replay.head.tolist() == [before] * 2
    again, mask_again = replay.shown(everyone)
    np.testing.assert_array_equal(again[PLAIN], shown[PLAIN])
    np.testing.assert_array_equal(mask_again, mask)
    assert not replay.all_valid
    item, _ = UniformSampler(replay).draw(np.random.default_rng(0), 500, 0.0)
    assert replay.valid(item).all()
    del story

    empty = Replay(arrays(replay.shape), replay.shape, gamma=GAMMA)
    empty.pad(1, 7)
    assert (empty.head.tolist(), empty.stored, empty.all_valid) == ([0, 7], 0, True)


def test_rows_that_a_lost_writer_may_have_begun_are_not_read_again() -> None:
    replay, story = filled()
    group, rows = 0, 5
    start = int(replay.head[group])
    assert start > replay.shape.rows, "the ring has gone round"
    lost = Row.blank(replay.shape.spec, replay.shape.group_size)
    lost.obs[PLAIN][:] = -7.0
    for t in range(start, start + rows):
        story.writers[group].show(t, lost, np.zeros(replay.shape.group_size, np.int64))
    replay.distrust(group, rows)
    story.play(group, 2)
    low, high = int(replay.low[group]), int(replay.high[group])
    assert high - low > 0
    columns = np.arange(replay.shape.n_envs)[replay.columns(group)]
    item = np.concatenate([t % replay.shape.rows * replay.shape.n_envs + columns for t in range(low, high)])
    found = replay.gather(item)
    assert not (found.obs[PLAIN] == -7.0).any()
    assert not (found.next_obs[PLAIN] == -7.0).any()


def test_its_state_is_all_there_is() -> None:
    replay, _ = filled()
    sampler = PrioritisedSampler(replay, 0.7)
    for group in range(2):
        sampler.took_in(group)
    sampler.surprised(sampler.draw(np.random.default_rng(0), 8, 1.0)[0], np.arange(8, dtype=np.float32))
    copy = Replay(arrays(replay.shape), replay.shape, gamma=GAMMA)
    other = PrioritisedSampler(copy, 0.7)
    copy.load({key: value.copy() for key, value in replay.state().items()})
    other.load(sampler.state())
    a, b = (one.draw(np.random.default_rng(3), 256, 0.5) for one in (sampler, other))
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_array_equal(a[1], b[1])
    first, second = replay.gather(a[0]), copy.gather(b[0])
    for name in ("action", "reward", "discount", "next_mask"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.next_obs[PLAIN], second.next_obs[PLAIN])


def test_frames_are_stored_once_and_bytes_are_what_is_documented() -> None:
    image = EnvSpec.of(spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(6))
    shape = ReplayShape(spec=image, rows=125_000, groups=1, group_size=8, frame_stack=4)
    # One frame, action, reward, flags, age and the place of a last observation.
    each = 84 * 84 + 8 + 4 + 1 + 1 + 4
    assert shape.nbytes() == 1_000_000 * each
    assert rows_for(shape.nbytes(), shape, in_bytes=True) == 125_000
    assert rows_for(1_000_000, shape, in_bytes=False) == 125_000
