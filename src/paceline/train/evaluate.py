"""Evaluation: the policy without exploration, on an env and with seeds that training does not use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from paceline.envs.block import ActionMap, ObsMap, success_in
from paceline.envs.make import EnvRecipe, describe
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError, EnvError, EnvHung, PacelineError
from paceline.memory.worker_status import BEAT, spare
from paceline.nets.actor import Actor, actor_for
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import ActionHead, head_for
from paceline.ops.exploring import EpsilonGreedy
from paceline.runtime.watchdog import watched
from paceline.spec import MASK_KEY, SUCCEEDED, EnvSpec

_EVALUATION = 0x5EED_E7A1
"""Combined with the run's seed, so that evaluation episodes differ from those of training."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns and lengths of evaluation episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    cut: int = 0
    """Number of episodes that were cut off after `max_steps`."""
    successes: tuple[bool, ...] = ()
    """Whether each episode reached its goal, for the episodes that the env judged (`info["is_success"]`)."""

    @property
    def success_rate(self) -> float | None:
        """Fraction of successes; None if the env judged no episode."""
        return float(np.mean(self.successes)) if self.successes else None

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
    """Maps observations of the env to actions of its action space, by the policy. Not thread-safe."""

    def __init__(
        self,
        policy: nn.Module,
        spec: EnvSpec,
        normaliser: ObsNormaliser | None,
        *,
        seed: int = 0,
        head: ActionHead | EpsilonGreedy | None = None,
    ) -> None:
        """Build the actor of a policy.

        Args:
            policy: The network, on the CPU. Later changes of its parameters take effect.
            spec: Observations and actions of the env.
            normaliser: Observation normaliser.
            seed: Seed of sampled actions.
            head: Turns the outputs of the network into actions; None for the distribution of the action space.
        """
        self._spec, self._head = spec, head or head_for(spec.action)
        self._actions, self._masks = ActionMap(spec), ObsMap(spec)
        self._policy, self._normaliser = policy, normaliser
        self._one = self._many = actor_for(policy, spec, 1, 1, normaliser)
        self._rows = 1  # of `_many`: the number of rows of the last batch
        self._generator = np.random.default_rng(seed)

    def __call__(self, obs: Any, *, mask: Any = None, deterministic: bool = True) -> Any:
        """Return the action for one observation as `env.step` expects it, or the actions of a batch as one array.

        Args:
            obs: An observation of the env's observation space, or n of them, stacked leaf by leaf.
            mask: The legal actions, [M] or [n, M]: `info["action_mask"]`. None if the env does not mask actions, or if
                the observations contain the mask.
            deterministic: Whether to return the most probable actions, not samples.

        Raises:
            ConfigError: The observation or the mask has another shape than the env's, or a mask is missing.
        """
        leaves, rows = self._leaves(obs)
        masks = self._legal(obs, mask, () if rows is None else (rows,))
        params, _ = (self._one if rows is None else self._batch_actor(rows))(leaves)
        if deterministic:
            action = self._head.mode(params, masks)
        else:
            action = self._head.choose(params, self._head.draw_noise(self._generator, (rows or 1,)), masks)
        return self._actions.each(action)[0] if rows is None else self._actions.batch(action)

    def _batch_actor(self, rows: int) -> Actor:
        if rows != self._rows:
            self._many, self._rows = actor_for(self._policy, self._spec, 1, rows, self._normaliser), rows
        return self._many

    def _leaves(self, obs: Any) -> tuple[dict[str, NDArray[Any]], int | None]:
        """Return the leaves `[n, *leaf]`, and n; None for a single observation."""
        if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict):
            raise ConfigError(
                "predict: got the pair (obs, info) of env.reset(). Write obs, info = env.reset() and pass obs."
            )
        leaves, rows = {}, set[int | None]()
        for leaf in self._spec.obs:
            try:
                value = np.asarray(leaf.of(obs), leaf.dtype)
            except (KeyError, TypeError, IndexError, ValueError) as error:
                raise ConfigError(
                    f"predict: the observation has no usable {leaf.name!r} ({describe(error)}). Pass what env.reset() "
                    "or env.step() returned."
                ) from error
            if value.shape == leaf.shape:
                rows.add(None)
                value = value[None]
            elif value.shape[1:] == leaf.shape and len(value):
                rows.add(len(value))
            else:
                batch = ", ".join(map(str, ("n", *leaf.shape)))
                raise ConfigError(
                    f"predict: observation {leaf.name!r} must have the shape {leaf.shape}, or ({batch}) for a batch "
                    f"(got {value.shape}). Pass what env.reset() or env.step() returned."
                )
            leaves[leaf.name] = value
        if len(rows) > 1:
            shapes = ", ".join(f"{name}: {value.shape}" for name, value in leaves.items())
            raise ConfigError(
                f"predict: all parts of a batch must have the same length (got {shapes}). Stack each part."
            )
        return leaves, rows.pop()

    def _legal(self, obs: Any, mask: Any, lead: tuple[int, ...]) -> NDArray[np.bool_] | None:
        """Return the masks `[n, M]`; None without masks."""
        action = self._spec.action
        if mask is None and self._masks.mask_in_obs:
            mask = obs[MASK_KEY]
        if mask is None:
            if self._spec.masked:
                raise ConfigError(
                    "predict: this env masks its actions, and without the mask the action may be illegal. Write "
                    f"predict(obs, mask=info[{MASK_KEY!r}]), with the info of reset or step."
                )
            return None
        if not action.mask_size:
            raise ConfigError(
                f"predict: mask= is for Discrete and MultiDiscrete actions, not {self._spec.action_space}. Omit it."
            )
        try:
            legal = self._masks.mask_vector(mask, lead).astype(np.bool_).reshape(*lead, action.mask_size)
        except ValueError:
            raise ConfigError(
                f"predict: the mask must have {action.mask_size} entries per observation, one per action (got shape "
                f"{np.shape(mask)}). Pass info[{MASK_KEY!r}] of the same reset or step as the observation."
            ) from None
        return legal.reshape(-1, action.mask_size)


class Evaluator:
    """Plays evaluation episodes on one env. After an evaluation that hangs or is cut off, the next makes a new env."""

    def __init__(
        self,
        recipe: EnvRecipe,
        predictor: Predictor,
        *,
        seed: int,
        timeouts_s: tuple[float, float],
        max_steps: int = 100_000,
    ) -> None:
        """Store the settings; the env is made later.

        Args:
            recipe: Makes the env.
            predictor: The policy.
            seed: Seed of the run; chooses the episodes.
            timeouts_s: Time limits in seconds: to make and first reset the env, and for a step.
            max_steps: Cut off episodes after this many steps.
        """
        self._recipe = recipe
        self._env: gym.Env[Any, Any] | None = None
        self._predict, self._seed, self._max_steps = predictor, seed, max_steps
        self._timeouts_s, self._line = timeouts_s, spare()

    def evaluate(
        self, episodes: int, *, deterministic: bool = True, watch: Callable[[Any, bool], None] | None = None
    ) -> Evaluation:
        """Play episodes with the same seeds in every call, so that evaluations can be compared. Blocks.

        Args:
            episodes: Number of episodes.
            deterministic: Whether to take the most probable actions, not samples.
            watch: Called with the env, and True after a reset or False after a step.

        Raises:
            EnvHung: The env exceeded a time limit; the stack is in the log.
            EnvError: The env raised an exception.
        """
        self._line[BEAT] = 0
        try:
            with self._watched("evaluate"):
                return self._play(episodes, deterministic, watch)
        except (EnvHung, KeyboardInterrupt):
            with suppress(Exception):
                self.close()  # the next evaluation makes a new env
            raise
        except PacelineError:
            raise
        except Exception as error:
            raise EnvError(
                f"evaluation (seed {self._seed}): the env raised {type(error).__name__}: {error}. Its episodes have "
                "other seeds than those of training; --n-eval-episodes 0 trains without evaluation."
            ) from error

    def _play(self, episodes: int, deterministic: bool, watch: Callable[[Any, bool], None] | None) -> Evaluation:
        env = self._env = self._env or self._recipe.make()
        beat = self._line.data
        returns, lengths, cut, successes = [], [], 0, []
        for episode in range(episodes):
            obs, info = env.reset(seed=episode_seed(self._seed ^ _EVALUATION, 0, episode))
            beat[BEAT] += 1
            if watch is not None:
                watch(env, True)
            total, length, ended = 0.0, 0, False
            while not ended and length < self._max_steps:
                action = self._predict(obs, mask=info.get(MASK_KEY), deterministic=deterministic)
                obs, reward, terminated, truncated, info = env.step(action)
                beat[BEAT] += 1
                total, length, ended = total + float(reward), length + 1, terminated or truncated
                if watch is not None:
                    watch(env, False)
            cut += not ended
            if ended and (judged := success_in(info)):
                successes.append(judged == SUCCEEDED)
            returns.append(total)
            lengths.append(length)
        return Evaluation(tuple(returns), tuple(lengths), cut, tuple(successes))

    def close(self) -> None:
        """Close the env. Does not wait for an env that hangs in `close`. Idempotent."""
        env, self._env = self._env, None
        if env is not None:
            self._line[BEAT] = 1
            with suppress(EnvHung), self._watched("close"):
                env.close()

    def _watched(self, command: str) -> AbstractContextManager[None]:
        who = f"evaluation on {self._recipe.name!r} (seed {self._seed})"
        return watched(
            command, self._timeouts_s, who=who, remedy="--n-eval-episodes 0 trains without evaluation.", line=self._line
        )
