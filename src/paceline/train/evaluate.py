"""Evaluation: the policy without exploration, on one env of its own, with seeds of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from torch import nn

from paceline.envs.block import ActionMap
from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.errors import EnvError, EnvHung, PacelineError
from paceline.memory.worker_status import BEAT, spare
from paceline.nets.actor import actor_for
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import ActionHead, head_for
from paceline.ops.exploring import EpsilonGreedy
from paceline.runtime.watchdog import watched
from paceline.spec import MASK_KEY, EnvSpec

_EVALUATION = 0x5EED_E7A1
"""Keeps evaluation episodes apart from training ones."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What some episodes brought."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    cut: int = 0
    """Episodes that were ended at `max_steps`."""

    @property
    def mean_reward(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std_reward(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def mean_ep_length(self) -> float:
        """Mean length."""
        return float(np.mean(self.lengths))


class Predictor:
    """The policy as a function from raw observations to actions of the env's own space."""

    def __init__(
        self,
        policy: nn.Module,
        spec: EnvSpec,
        normaliser: ObsNormaliser | None,
        *,
        seed: int = 0,
        head: ActionHead | EpsilonGreedy | None = None,
    ) -> None:
        """Act with a policy.

        Args:
            policy: On the CPU.
            spec: Of the env.
            normaliser: Of observations.
            seed: Of samples.
            head: What its outputs mean; None for a distribution over actions.
        """
        self._spec, self._head, self._actions = spec, head or head_for(spec.action), ActionMap(spec)
        self._actor = actor_for(policy, spec, 1, 1, normaliser)
        self._generator = np.random.default_rng(seed)

    def __call__(self, obs: Any, *, mask: Any = None, deterministic: bool = True) -> Any:
        """The action for one observation, as `env.step` takes it.

        Args:
            obs: One observation of the env's space.
            mask: Legal actions, where the env says so.
            deterministic: The most probable action; otherwise a sample.
        """
        leaves = {
            leaf.name: np.asarray(value, leaf.dtype).reshape(1, *leaf.shape)
            for leaf, value in zip(self._spec.obs, self._spec.split(obs).values(), strict=True)
        }
        if mask is None and self._spec.dict_obs and MASK_KEY in obs:
            mask = obs[MASK_KEY]
        masks = None if mask is None else np.asarray(mask, np.bool_).reshape(1, -1)
        params, _ = self._actor(leaves)
        if deterministic:
            action = self._head.mode(params, masks)
        else:
            action = self._head.choose(params, self._head.draw_noise(self._generator, (1,)), masks)
        return self._actions.each(action)[0]


class Evaluator:
    """Keeps one env for evaluations. One that hangs is broken off, and the next evaluation has another."""

    def __init__(
        self,
        recipe: EnvRecipe,
        predictor: Predictor,
        *,
        seed: int,
        timeouts_s: tuple[float, float],
        max_steps: int = 100_000,
    ) -> None:
        """Make nothing yet.

        Args:
            recipe: The env.
            predictor: The policy.
            seed: The run's seed.
            timeouts_s: How long making and first resetting the env, and then a step of it, may take.
            max_steps: An episode is cut here: an env may never end one.
        """
        self._recipe = recipe
        self._env: gym.Env[Any, Any] | None = None
        self._predict, self._seed, self._max_steps = predictor, seed, max_steps
        self._timeouts_s, self._line = timeouts_s, spare()

    def evaluate(
        self, episodes: int, *, deterministic: bool = True, watch: Callable[[Any, bool], None] | None = None
    ) -> Evaluation:
        """Play `episodes` episodes: always the same ones, so that two evaluations can be compared.

        Args:
            episodes: How many.
            deterministic: The most probable action; otherwise a sample.
            watch: Called with the env after every reset (True) and step (False).

        Raises:
            EnvHung: The env stood still for too long; the stack is in the log.
            EnvError: The env raised.
        """
        self._line[BEAT] = 0
        try:
            with self._watched("evaluate"):
                return self._play(episodes, deterministic, watch)
        except EnvHung:
            with suppress(Exception):
                self.close()  # it is of no more use
            raise
        except PacelineError:
            raise
        except Exception as error:
            raise EnvError(
                f"evaluation (seed {self._seed}): the env raised {type(error).__name__}: {error}. Its episodes have "
                "seeds of their own; --n-eval-episodes 0 trains without."
            ) from error

    def _play(self, episodes: int, deterministic: bool, watch: Callable[[Any, bool], None] | None) -> Evaluation:
        env = self._env = self._env or self._recipe.make()
        beat = self._line.data
        returns, lengths, cut = [], [], 0
        for episode in range(episodes):
            obs, info = env.reset(seed=episode_seed(self._seed ^ _EVALUATION, 0, episode))
            beat[BEAT] += 1
            if watch is not None:
                watch(env, True)
            total, length = 0.0, 0
            while True:
                action = self._predict(obs, mask=info.get(MASK_KEY), deterministic=deterministic)
                obs, reward, terminated, truncated, info = env.step(action)
                beat[BEAT] += 1
                total, length = total + float(reward), length + 1
                if watch is not None:
                    watch(env, False)
                if terminated or truncated:
                    break
                if length >= self._max_steps:
                    cut += 1
                    break
            returns.append(total)
            lengths.append(length)
        return Evaluation(tuple(returns), tuple(lengths), cut)

    def close(self) -> None:
        """Close the env; one that hangs in it is left to itself."""
        env, self._env = self._env, None
        if env is not None:
            self._line[BEAT] = 1
            with suppress(EnvHung), self._watched("close"):
                env.close()

    def _watched(self, command: str) -> AbstractContextManager[None]:
        who = f"evaluation on {self._recipe.name!r} (seed {self._seed})"
        return watched(
            command, self._timeouts_s, who=who, remedy="--n-eval-episodes 0 trains without.", line=self._line
        )
