"""Wrappers that Gymnasium lacks: frame stacking along the last axis, and a single env made of a vector env of one."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from paceline.envs.extras import named_extras
from paceline.errors import ConfigError, EnvError
from paceline.spec import MASK_KEY


class FrameStack(gym.Wrapper[Any, Any, Any, Any]):
    """Concatenates the last k observations along the last axis, newest last.

    Images (H, W, C) become (H, W, k*C) and vectors (d,) become (k*d,), the shapes that networks take. Gymnasium's own
    wrapper adds a leading axis instead, and keeps references to observations, which is wrong for an env that reuses its
    array. At the start of an episode the first observation is repeated, so nothing before the reset matters.

    Args:
        env: The env; Dict observations are stacked key by key, except `action_mask`.
        frames: Number of observations (k), at least 1.
    """

    def __init__(self, env: gym.Env[Any, Any], frames: int) -> None:
        super().__init__(env)
        if frames < 1:
            raise ConfigError(f"frame_stack={frames}: must be at least 1.")
        self._frames = frames
        self._inner = env.observation_space
        self.observation_space = _stacked_space(env.observation_space, frames, "obs")
        self._stack: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with k copies of its first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._stack = _repeat(self._inner, obs, self._frames)
        return self._stack, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and replace the oldest observation by the newest."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._stack = _push(self._inner, self._stack, obs)
        return self._stack, reward, terminated, truncated, info


def _stacked_space(space: spaces.Space[Any], k: int, name: str) -> spaces.Space[Any]:
    match space:
        case spaces.Dict():
            return spaces.Dict(
                {key: sub if key == MASK_KEY else _stacked_space(sub, k, key) for key, sub in space.spaces.items()}
            )
        case spaces.Box():
            low, high = (np.concatenate([np.atleast_1d(bound)] * k, axis=-1) for bound in (space.low, space.high))
            return spaces.Box(low, high, dtype=space.dtype.type)
        case spaces.MultiBinary(shape=shape):
            return spaces.MultiBinary([*shape[:-1], shape[-1] * k])
        case spaces.MultiDiscrete(nvec=nvec):
            return spaces.MultiDiscrete(np.concatenate([nvec] * k, axis=-1))
        case spaces.Discrete(n=n, start=0):
            return spaces.MultiDiscrete([int(n)] * k)
        case _:
            raise ConfigError(
                f"frame_stack={k}: observation {name!r} cannot be stacked ({space}). Box, MultiBinary, MultiDiscrete "
                "and Discrete with start=0 can, alone or in a Dict."
            )


def _repeat(space: spaces.Space[Any], obs: Any, k: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: obs[key] if key == MASK_KEY else _repeat(sub, obs[key], k) for key, sub in space.spaces.items()}
    return np.concatenate([np.atleast_1d(obs)] * k, axis=-1)


def _push(space: spaces.Space[Any], stack: Any, obs: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {
            key: obs[key] if key == MASK_KEY else _push(sub, stack[key], obs[key]) for key, sub in space.spaces.items()
        }
    newest = np.atleast_1d(obs)
    # A new array each time, so that the caller may keep earlier observations.
    return np.concatenate([stack[..., newest.shape[-1] :], newest], axis=-1)


class OneOfVector(gym.Env[Any, Any]):
    """A single env made of a vector env with one env, for ids that register only a vector env.

    Args:
        vector: A vector env with `num_envs == 1`. This env owns it and closes it.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self._vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.render_mode = vector.render_mode
        self._same_step = vector.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        self._final_info: dict[str, Any] | None = None
        """`final_info` of an episode that has just ended, with SAME_STEP autoreset."""
        self.extras = named_extras(vector)
        for name, extra in self.extras.items():
            if extra.read:
                setattr(self, extra.read, partial(self._reading, name, extra.read))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._final_info = None
        obs, infos = self._vector.reset(seed=seed, options=options)
        return self._first(obs), _first_info(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; at the end of an episode it returns the episode's final observation in every autoreset mode."""
        batch = np.asarray(action, dtype=self.action_space.dtype)[None]
        obs, reward, terminated, truncated, infos = self._vector.step(batch)
        info, self._final_info = _first_info(infos), None
        if self._same_step and (terminated[0] or truncated[0]):
            if "final_obs" not in infos:
                raise EnvError("vector env: SAME_STEP autoreset must provide infos['final_obs'] when an episode ends.")
            obs, self._final_info = infos["final_obs"], infos.get("final_info", {})
            info |= _first_info(self._final_info)
        return self._first(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def close(self) -> None:
        """Close the vector env."""
        self._vector.close()

    def _reading(self, name: str, read: str) -> Any:
        """Return an extra; right after the end of an episode, that of the ended episode."""
        if self._final_info is None:
            return getattr(self._vector, read)()[0]
        if name not in self._final_info:
            raise EnvError(f"vector env: extra {name!r} of an episode's end must be in infos['final_info'].")
        return self._final_info[name][0]

    def _first(self, obs: Any) -> Any:
        # The final observations of envs are an array of objects, also if they are dicts.
        return obs[0] if isinstance(obs, np.ndarray) else next(iter(iterate(self._vector.observation_space, obs)))


def _first_info(infos: dict[str, Any]) -> dict[str, Any]:
    return {key: value[0] for key, value in infos.items() if key[:1] != "_" and isinstance(value, np.ndarray)}
