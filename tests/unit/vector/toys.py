"""Test envs for vector envs, importable by workers: any space, all kinds of infos, seeded episode ends."""

from __future__ import annotations

import copy
import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from paceline.vector.channel import Channel, ProcessChannel


def notifications(channel: Channel) -> list[int]:
    """How often each worker has been woken to step or reset envs; empty if the envs are in this process."""
    return list(channel._doorbells.notifications) if isinstance(channel, ProcessChannel) else []


class SampleEnv(gym.Env[Any, Any]):
    """Shows samples of its space; everything depends on the seed, the actions and nothing else."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "kind": "sample"}  # noqa: RUF012

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        *,
        chatty: bool = True,
        reuse: bool = False,
        render_mode: str | None = None,
    ) -> None:
        box, three = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(3)
        # Copies: a space has a generator of its own.
        self.observation_space = copy.deepcopy(box if observation_space is None else observation_space)
        self.action_space = copy.deepcopy(three if action_space is None else action_space)
        self.chatty, self.render_mode = chatty, render_mode
        self.elapsed, self.length, self.label = 0, 0, "new"
        self._reuse = reuse
        self._buffer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.elapsed, self.length = 0, int(self.np_random.integers(1, 5))
        return self._look(), {"begun": str(seed), "options": options} if self.chatty else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        ended = self.elapsed >= self.length
        terminated = ended and bool(self.np_random.integers(2))
        return self._look(), self._worth(action), terminated, ended and not terminated, self._info(action)

    def render(self) -> Any:
        return f"{self.elapsed} of {self.length}"

    def twice(self, value: int, *, and_more: int = 0) -> int:
        return 2 * value + and_more

    def whine(self) -> None:
        raise KeyError("nothing doing")

    def _look(self) -> Any:
        obs = self.observation_space.sample()
        if not self._reuse:
            return obs
        self._buffer = obs if self._buffer is None else self._buffer
        self._buffer[...] = obs
        return self._buffer

    def _info(self, action: Any) -> dict[str, Any]:
        if not self.chatty or self.np_random.random() < 0.5:
            return {}
        info: dict[str, Any] = {"elapsed": self.elapsed, "nested": {"share": self.elapsed / self.length}}
        if self.np_random.random() < 0.5:
            info |= {"array": np.arange(3) * self.elapsed, "text": f"did {action!r}", "flag": True}
        return info

    def _worth(self, action: Any) -> float:
        return float(len(repr(action))) + float(self.np_random.random())


class Gate(gym.Env[Any, Any]):
    """Waits in `step` until its file is there, if it is the env with the given seed."""

    def __init__(self, path: str, seed: int) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._path, self._due, self._waits = path, seed, False
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._waits = seed == self._due
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while self._waits and not os.path.exists(self._path):
            time.sleep(0.001)
        self._steps += 1
        return np.full(1, self._steps, np.float32), float(action), False, False, {"steps": self._steps}


FIXED = st.one_of(
    st.sampled_from(
        [
            spaces.Box(-1.0, 1.0, (3,), np.float32),
            spaces.Box(0, 255, (4, 5, 3), np.uint8),
            spaces.Box(-2.0, 2.0, (), np.float64),
            spaces.Box(-5, 5, (2, 2), np.int16),
            spaces.Discrete(4),
            spaces.Discrete(3, start=-1),
            spaces.MultiDiscrete([3, 2]),
            spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
            spaces.MultiBinary(4),
            spaces.MultiBinary((2, 2)),
        ]
    )
)
LOOSE = st.sampled_from(
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    ]
)
SPACES = st.recursive(
    st.one_of(FIXED, FIXED, LOOSE),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from(["a", "b", "c/d"]), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=4,
)
"""Spaces of every kind, nested."""
