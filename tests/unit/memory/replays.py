"""A replay filled at random, and a slow copy of its definition: lists of whole transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter
from paceline.memory.rows import Row
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
