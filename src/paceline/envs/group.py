"""The step loop over single envs: the innermost loop of collecting. Every error names the env.

The loop adds about a microsecond to an env step (make bench-env-loop), half of which is the copy of the observation:
methods are bound once, actions become Python objects once per row, small fields are written once per row. Only
observations are copied to the row env by env, before the next env steps, because an env may reuse its array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.envs import block
from paceline.envs.block import (
    CHECKED_STEPS,
    ActionMap,
    BlockSetup,
    FinalObs,
    History,
    ObsMap,
    Watch,
    require_same_spaces,
    success_in,
)
from paceline.envs.extras import Readings
from paceline.envs.make import Env, describe
from paceline.envs.seeding import episode_seed
from paceline.errors import EnvError
from paceline.memory.rows import Row
from paceline.memory.worker_status import ENV, WorkerStatus
from paceline.spec import MASK_KEY, EnvSpec
from paceline.system.one_core import roaming


class SingleEnvs:
    """Steps n single envs one after another, and resets an ended env within the same step.

    Args:
        setup: The envs.
        make: Makes an env in place of the setup's recipe: for envs that are made in another thread.
    """

    def __init__(self, setup: BlockSetup, make: Callable[..., Env] | None = None) -> None:
        spec, n, make = setup.spec, setup.n, make or setup.recipe.make
        self.episode = setup.episode
        self._seed, self._first = setup.seed, setup.first_env
        self._actions, self._obs = ActionMap(spec), ObsMap(spec)
        self._simple = not spec.dict_obs and not spec.masked
        self._rewards: list[Any] = [0.0] * n
        self._status, self._row = WorkerStatus(setup.line, self._first), 0
        self.readings = Readings(spec.extras, n, self._who) if spec.extras else None
        self._begun = [0] * n  # The row in which each env's episode began: gives the step for error texts.
        self.envs: list[Env] = []
        try:
            for i in self._status.each(n):
                self.envs.append(make(who=f"env {self._first + i} (seed {self._seed})"))
            self._check_envs(spec)
        except BaseException:
            self.close()
            raise
        self._steps = [env.step for env in self.envs]

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        for i in self._status.each(len(self.envs)):
            self._show(i, *self._begin(i), row)
        if self.readings is not None:
            self.readings.show_current(row)
        if row.mask is not None:
            self._obs.check_legal(row.mask, self._first)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended envs start their next episode. See `EnvBlock.step`."""
        self._row += 1
        rewards = self._rewards
        # The usual case, one array and nothing to check, avoids a function call per env.
        simple = self._simple and self._row > CHECKED_STEPS
        only_leaf = next(iter(after.obs.values()))
        finals: list[tuple[int, dict[str, NDArray[Any]]]] = []
        row.terminated.fill(False)
        row.truncated.fill(False)
        row.success.fill(0)
        row.valid.fill(True)
        actions = self._actions.each(action)
        readings = self.readings
        if readings is not None:
            readings.before_step()
        i, line = 0, self._status.begin()
        try:
            for i, env_step in enumerate(self._steps):
                line[ENV] = i
                obs, rewards[i], terminated, truncated, info = env_step(actions[i])
                if readings is not None:
                    readings.stepped(i, info)
                if terminated or truncated:
                    row.terminated[i], row.truncated[i] = terminated, truncated
                    row.success[i] = success_in(info)
                    if not terminated:
                        finals.append((i, self._last_obs(i, obs, info)))
                    self.episode[i] += 1
                    obs, info = self._begin(i)
                if simple:
                    only_leaf[i] = obs
                else:
                    self._show(i, obs, info, after)
        except EnvError:
            raise
        except Exception as error:
            raise self._failure(i, actions[i], error) from error
        self._status.end()
        try:
            row.reward[...] = rewards
        except (TypeError, ValueError):
            row.reward[...] = self._numbers(rewards)
        if self._row <= CHECKED_STEPS:
            self._numbers(rewards)  # because numpy silently converts None to NaN
        if readings is not None:
            readings.show(after)
        if after.mask is not None:
            self._obs.check_legal(after.mask, self._first)
        return finals

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """Replay every env's episode and compare the outcome bit for bit. See `EnvBlock.restore`."""
        restarted = []
        for i in self._status.each(len(histories)):
            history = histories[i]
            self.episode[i] = history.episode
            if self.readings is not None:
                self.readings.restore(i, history.tags)
            if history.state:
                self.replace(i, cloudpickle.loads(history.state))
                self._begun[i] = self._row - len(history.actions)
                history.show(i, row)
            elif not self._replay(i, history, row, watch):
                self.episode[i] += 1
                self._show(i, *self._begin(i), row)
                restarted.append(i)
        if self.readings is not None:
            self.readings.show_current(row)
        if row.mask is not None:
            self._obs.check_legal(row.mask, self._first)
        return restarted

    def replace(self, i: int, env: Env) -> None:
        """Use another object as env i."""
        self.envs[i], self._steps[i] = env, env.step

    def dump(self) -> list[bytes]:
        """Pickle the envs; one entry per env. See `EnvBlock.dump`."""
        return [block.pickled(env, self._who(i)) for i, env in enumerate(self.envs)]

    def close(self) -> None:
        """Close the envs, also if one of them raises. May be called twice."""
        block.close_all(self.envs, lambda i: f"env {self._first + i}")

    def _begin(self, i: int) -> tuple[Any, dict[str, Any]]:
        """Reset env i with the seed of its episode."""
        try:
            obs, info = roaming(self.envs[i].reset, seed=self._episode_seed(i))
        except Exception as error:
            raise EnvError(
                f"{self._who(i)} raised in reset: {describe(error)}. To reproduce: {self._how(i)}."
            ) from error
        self._begun[i] = self._row
        if self.readings is not None:
            self.readings.began(i, info)
        return obs, info

    def _last_obs(self, i: int, obs: Any, info: dict[str, Any]) -> dict[str, NDArray[Any]]:
        if self._row <= CHECKED_STEPS:
            self._obs.check(obs, info, self._who(i))
        last = self._obs.copy(obs)
        if self._obs.masked and (MASK_KEY in (obs if self._obs.mask_in_obs else info)):
            last[MASK_KEY] = np.array(self._obs.mask(obs, info), np.bool_)
        return last

    def _show(self, i: int, obs: Any, info: dict[str, Any], row: Row) -> None:
        """Write the observation and the action mask of env i to the row."""
        if self._row <= CHECKED_STEPS:
            self._obs.check(obs, info, self._who(i))
        self._obs.write(obs, i, row.obs)
        if row.mask is not None:
            row.mask[i] = self._obs.mask(obs, info)

    def _replay(self, i: int, history: History, row: Row, watch: Watch | None) -> bool:
        """Replay the episode of env i; returns False if the result differs from its history."""
        obs, info = self._begin(i)
        if watch is not None:
            self._show(i, obs, info, row)
            watch.began(i)
        for stored, action in zip(history.actions, self._actions.each(history.actions), strict=True):
            if self.readings is not None:
                self.readings.before_step()
            try:
                obs, reward, terminated, truncated, info = self._steps[i](action)
            except Exception as error:
                raise self._failure(i, action, error) from error
            self._status.beat()  # an episode may be long
            if terminated or truncated:
                return False
            if self.readings is not None:
                self.readings.stepped(i, info)
            if watch is not None:
                watch.stepped(i, stored, reward)
                self._show(i, obs, info, row)
            if self.readings is not None:
                self.readings.settle()
        # For error texts: the episode began this many rows ago.
        self._begun[i] = self._row - len(history.actions)
        self._show(i, obs, info, row)
        same = all(row.obs[name][i].tobytes() == leaf.tobytes() for name, leaf in history.obs.items())
        return same and (row.mask is None or history.mask is None or np.array_equal(row.mask[i], history.mask))

    def _check_envs(self, spec: EnvSpec) -> None:
        block.require_distinct(self.envs)
        for i, env in enumerate(self.envs):
            made = EnvSpec.of(env.observation_space, env.action_space, masked=spec.masked)
            require_same_spaces(made, spec, f"env {self._first + i}")

    def _numbers(self, rewards: list[Any]) -> list[float]:
        """Convert rewards to floats; accepts arrays with one element, which take longer."""
        numbers = []
        for i, reward in enumerate(rewards):
            try:
                numbers.append(float(np.asarray(reward).item()))
            except (TypeError, ValueError) as error:
                raise EnvError(f"{self._who(i)}: reward must be a single number (got {reward!r}).") from error
        return numbers

    def _failure(self, i: int, action: Any, error: Exception) -> EnvError:
        step = self._row - self._begun[i]
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        # Raised by our own code, not the env's: the env returned something that we could not unpack or store.
        our_modules = (__name__, block.__name__, EnvSpec.__module__)
        ours = frame is not None and frame.tb_frame.f_globals.get("__name__") in our_modules
        if ours:
            what = f"returned values that cannot be stored in step {step} with action {action!r}: {describe(error)}"
            rule = "Step must return (obs, reward, terminated, truncated, info) that match the env's spaces."
            return EnvError(f"{self._who(i)} {what}. {rule}")
        what = f"raised in step {step} with action {action!r}: {describe(error)}"
        return EnvError(f"{self._who(i)} {what}. To reproduce: {self._how(i)} and repeat the episode's actions.")

    def _who(self, i: int) -> str:
        return f"env {self._first + i} (seed {self._seed}, episode {int(self.episode[i])})"

    def _how(self, i: int) -> str:
        return f"reset(seed={self._episode_seed(i)})"

    def _episode_seed(self, i: int) -> int:
        return episode_seed(self._seed, self._first + i, int(self.episode[i]))
