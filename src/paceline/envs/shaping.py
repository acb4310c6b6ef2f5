"""Reward shaping: the `RewardShaper` protocol, and the block of envs that applies a shaper.

    extras before, obs, action -> env.step -> reward, extras after -> RewardShaper -> parts of the reward

The shaper runs in the worker right after the step, so it needs no message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import EnvBlock, FinalObs, History, Watch, ahead_of
from paceline.envs.make import load
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.spec import ENV_REWARD, EnvSpec, Shaping


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a worker's n envs. The worker reuses the arrays: read them, and keep no reference."""

    extras: Mapping[str, NDArray[Any]]  # [n, *extra]        before the step
    obs: Mapping[str, NDArray[Any]]  # [n, *leaf]            before the step
    action: NDArray[Any]  # [n, *act]                        stored form: categories count from zero
    reward: NDArray[np.float32]  # [n]                       the env's own
    terminated: NDArray[np.bool_]  # [n]
    truncated: NDArray[np.bool_]  # [n]
    valid: NDArray[np.bool_]  # [n]                          False: this step only reset the env
    extras_after: Mapping[str, NDArray[Any]]  # [n, *extra]  after the step, before any reset


class RewardShaper(Protocol):
    """Adds terms ("parts") to the env's reward, inside the worker. Its state is per env and reset with every episode.

    Its results must depend on the transitions of the episode alone: after a failure the worker replays the episode and
    passes its transitions again, one env at a time, with `valid` False for all other envs. Ignore envs where `valid` is
    False.

    Optional: an attribute `measures`, the names of numbers that are only logged, and a method `measure()` that returns
    their current values, [n] by name.
    """

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the terms that it adds, each logged separately. A class attribute is enough."""

    def begin(self, envs: NDArray[np.int64], extras: Mapping[str, NDArray[Any]]) -> None:
        """Reset the state of envs that start an episode.

        Args:
            envs: Their indices among the worker's n envs.
            extras: [n, *extra] newest extras of all n envs, by name.
        """

    def __call__(self, step: Transition) -> Mapping[str, NDArray[np.float32]]:
        """Return the terms to add to the reward of each env: [n] by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShaperRecipe:
    """How to make a reward shaper. Can be pickled with cloudpickle."""

    source: str | Callable[..., RewardShaper]
    """`module:Name`, or a callable; called with the number of envs."""
    kwargs: dict[str, Any] = field(default_factory=dict)

    def make(self, n: int) -> RewardShaper:
        """Make a shaper for n envs.

        Raises:
            ConfigError: The shaper does not exist, does not take these arguments, or lacks a method.
        """
        source = load(self.source, "shaper") if isinstance(self.source, str) else self.source
        try:
            shaper: RewardShaper = source(n, **self.kwargs)
        except TypeError as error:
            raise ConfigError(
                f"shaper {self.source!r}: {error}. Its first argument must be the number of envs."
            ) from error
        for name in ("parts", "begin", "__call__"):
            if not hasattr(shaper, name):
                raise ConfigError(f"shaper {self.source!r}: has no {name!r}. See paceline.RewardShaper.")
        return shaper

    def shaping(self) -> Shaping:
        """Return the names of the numbers that the shaper reports for every step."""
        shaper = self.make(1)
        shaping = Shaping(tuple(shaper.parts), tuple(getattr(shaper, "measures", ())))
        if len(set(shaping.reward_parts)) < len(shaping.reward_parts):
            raise ConfigError(f"shaper {self.source!r}: names must be unique (got {', '.join(shaping.reward_parts)}).")
        return shaping


class ShapedEnvs:
    """Wraps an env block and adds the terms of a reward shaper to its rewards.

    Args:
        envs: The block to wrap.
        shaper: The shaper of these envs.
        spec: Spec of the envs.
        n: Number of envs.
    """

    def __init__(self, envs: EnvBlock, shaper: RewardShaper, spec: EnvSpec, n: int) -> None:
        self.episode, self.readings = envs.episode, envs.readings
        self._envs, self._shaper, self._shaping = envs, shaper, spec.shaping or Shaping(())
        self._measure = getattr(shaper, "measure", dict)
        self._before = {name: np.zeros((n, *extra.shape), extra.dtype) for name, extra in spec.extras.items()}
        self._everyone = np.arange(n)
        self.ahead = ahead_of(envs)
        """The block's `ahead` method; None if it has none."""

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self._envs.reset(row)
        self._shaper.begin(self._everyone, self._now())

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once, then shape. See `EnvBlock.step`."""
        for name, values in self._now().items():
            self._before[name][...] = values
        finals = self._envs.step(action, row, after)
        self._shape(action, row)
        # A step that ends an episode also starts the next one; in NEXT_STEP autoreset the step after it does.
        begun = np.flatnonzero(row.terminated | row.truncated | ~row.valid)
        if len(begun):
            self._shaper.begin(begun, self._now())
        return finals

    def restore(self, histories: Sequence[History], row: Row, _watch: Watch | None = None, /) -> list[int]:
        """Restore every env, and pass the replayed steps to the shaper. See `EnvBlock.restore`."""
        self._shaper.begin(self._everyone, self._now())
        restarted = self._envs.restore(histories, row, _ReplayShaper(self, row))
        if restarted:
            self._shaper.begin(np.asarray(restarted), self._now())
        return restarted

    def dump(self) -> list[bytes]:
        """Pickle the envs. See `EnvBlock.dump`."""
        return self._envs.dump()

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()

    def _shape(self, action: NDArray[Any], row: Row) -> None:
        """Add the shaper's terms to the row's rewards, and write each term to `row.reward_parts`."""
        reached = {} if self.readings is None else self.readings.reached
        step = Transition(
            extras=self._before,
            obs=row.obs,
            action=action,
            reward=row.reward,
            terminated=row.terminated,
            truncated=row.truncated,
            valid=row.valid,
            extras_after=reached,
        )
        parts, reward = self._shaper(step), row.reward
        row.reward_parts[ENV_REWARD][...] = reward
        try:
            for name in self._shaping.parts:
                row.reward_parts[name][...] = parts[name]
                row.reward_parts[name][~row.valid] = 0.0
                reward += row.reward_parts[name]
                if not np.isfinite(row.reward_parts[name]).all():
                    bad = int(np.flatnonzero(~np.isfinite(row.reward_parts[name]))[0])
                    raise EnvError(
                        f"shaper {type(self._shaper).__name__}: part {name!r} of the worker's env {bad} is not finite "
                        f"({row.reward_parts[name][bad]}). Fix the shaper."
                    )
            if self._shaping.measures:
                measured: Mapping[str, NDArray[np.float32]] = self._measure()
                for name in self._shaping.measures:
                    row.reward_parts[name][...] = measured[name]
        except (KeyError, ValueError) as error:
            raise EnvError(
                f"shaper {type(self._shaper).__name__}: must return {len(self._everyone)} numbers for each of "
                f"{', '.join(self._shaping.reward_parts[1:])} ({type(error).__name__}: {error})."
            ) from error

    def _now(self) -> Mapping[str, NDArray[Any]]:
        return {} if self.readings is None else self.readings.now


class _ReplayShaper:
    """A `Watch` that passes replayed steps to the shaper, one env at a time."""

    def __init__(self, shaped: ShapedEnvs, row: Row) -> None:
        n = len(shaped._everyone)
        self._shaped, self._row = shaped, row
        self._reward, self._none, self._valid = np.zeros(n, np.float32), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._action = np.zeros_like(row.action)

    def began(self, i: int) -> None:
        """Reset the shaper's state of env i."""
        self._shaped._shaper.begin(np.array([i]), self._shaped._now())

    def stepped(self, i: int, action: Any, reward: Any) -> None:
        """Pass one replayed step of env i to the shaper."""
        self._valid[:] = False
        self._valid[i], self._reward[i], self._action[i] = True, reward, action
        readings = self._shaped.readings
        self._shaped._shaper(
            Transition(
                extras={} if readings is None else readings.now,
                obs=self._row.obs,
                action=self._action,
                reward=self._reward,
                terminated=self._none,
                truncated=self._none,
                valid=self._valid,
                extras_after={} if readings is None else readings.reached,
            )
        )
