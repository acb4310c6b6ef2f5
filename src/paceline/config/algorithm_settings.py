"""What the rest of the program reads from the settings of any algorithm. Free of torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import Field
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from paceline.errors import ConfigError, check_range

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig

Schedule = Literal["constant", "linear", "cosine"]
"""How a setting changes over the budget; `paceline.ops.schedules` has the functions."""
Scheduled: TypeAlias = float | str | Callable[[float], float]
"""An initial value; or a function of the remaining progress (1 to 0), or its import path."""
NetworkOutputs = Literal["policy", "values", "dueling values"]
"""Meaning of the network's outputs: parameters of the action distribution, Q-values, or advantages and a value."""


class AlgorithmSettings(Protocol):
    """The section `training` of a config: each algorithm derives a frozen dataclass from it.

    What has a value here suits a synchronous algorithm that learns from rollouts; the others override it.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def n_steps(self) -> int | None:
        """Steps each env takes before an update; None where something else decides."""

    @property
    def rollout_steps(self) -> int:
        """Steps that each env takes at a time (T)."""
        return self.n_steps or 1

    @property
    def learning_rate(self) -> Scheduled:
        """Learning rate: that of the start, or a function."""

    @property
    def lr_schedule(self) -> Schedule:
        """How a learning rate that is a number changes over the budget."""
        return "constant"

    @property
    def clip_schedule(self) -> Schedule:
        """How a clip range that is a number changes over the budget, in algorithms that clip."""
        return "constant"

    @property
    def batch_size(self) -> int | None:
        """Minibatch size in steps; None for the default."""

    @property
    def gamma(self) -> float:
        """Discount factor."""

    @property
    def learner_threads(self) -> int:
        """Torch threads of the learner."""

    @property
    def grad_shards(self) -> int | None:
        """Shards of a minibatch's gradient; None for the default."""

    @property
    def normalize_advantage(self) -> bool:
        """Whether advantages are normalised."""

    @property
    def splits_batches(self) -> bool:
        """Whether a rollout is split into minibatches of `batch_size`, which then has a default."""
        return False

    @property
    def largest_default_batch(self) -> int:
        """Largest minibatch that is chosen if `batch_size` is not given."""
        return 1024

    @property
    def normalizes_reward(self) -> bool:
        """Whether rewards are normalised if `normalize_reward` is not given."""
        return False

    @property
    def asynchronous(self) -> bool:
        """Whether workers collect while the learner learns, each at its own pace."""
        return False

    @property
    def workers_learn(self) -> bool:
        """Whether workers update the weights themselves, on their own CPU cores."""
        return False

    @property
    def plays_episodes(self) -> bool:
        """Whether a batch is counted in episodes instead of steps."""
        return False

    @property
    def network_outputs(self) -> NetworkOutputs:
        """What the network's outputs mean."""
        return "policy"

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:  # noqa: ARG002
        """Raise ConfigError where a setting of another section is not supported."""
        return  # without it mypy would regard the method as abstract


SettingsDefaults = AlgorithmSettings
"""The former name of the class to derive settings from."""


def checked_schedule(name: str, value: Scheduled, schedule: Schedule, hint: str) -> Scheduled:
    """Check a setting that may be a function; returns the import path of a function that has one.

    A function of a script or inside another function has none: its run cannot be resumed from the saved config alone.

    Args:
        name: The setting.
        value: Its value.
        schedule: The schedule of a number, which a function must not have.
        hint: The advice that ends the message about a number.

    Raises:
        ConfigError: The number is not above zero, the text is no import path, or a function has a schedule.
    """
    if isinstance(value, str) and not re.fullmatch(r"[\w.]+:\w+|<Python object .*>", value):
        raise ConfigError(f"{name}={value!r}: must be a number or an import path. {hint} Or write module:function.")
    if not isinstance(value, str) and not callable(value):
        check_range(name, value, hint, above=0)
        return value
    if schedule != "constant":
        raise ConfigError(
            f"{name} is a function, which gives the value itself, and cannot be combined with a {schedule} schedule. "
            "Leave one of the two out."
        )
    if isinstance(value, FunctionType) and vars(sys.modules.get(value.__module__, object)).get(value.__name__) is value:
        return value if value.__module__ == "__main__" else f"{value.__module__}:{value.__name__}"
    return value


def check_asynchronous(env: EnvConfig, run: RunConfig) -> None:
    """Raise ConfigError for what needs all envs to pause, or their steps in order."""
    if run.trust_env_state:
        raise ConfigError(
            f"trust_env_state: unsupported with {run.algo}, whose envs never pause to be saved; a resumed run "
            "starts new episodes. Leave it out, or use ppo."
        )
    if env.normalize_reward:
        raise ConfigError(
            f"normalize_reward: needs every env's steps in order, but {run.algo} batches slots in the order "
            "in which they fill. Scale rewards in a wrapper, or use ppo."
        )


class SurrogateSettings(AlgorithmSettings, Protocol):
    """What the learner of PPO, IMPALA, APPO and A3C, and its gradient, read from the settings."""

    @property
    def n_epochs(self) -> int:
        """Passes over each batch."""

    @property
    def clip_range(self) -> Scheduled:
        """Clip range of the probability ratio: that of the start, or a function. Infinite for no clipping."""

    @property
    def clip_range_vf(self) -> float | None:
        """Clip range of the value function; None for no clipping."""

    @property
    def ent_coef(self) -> float:
        """Entropy bonus coefficient."""

    @property
    def vf_coef(self) -> float:
        """Value loss coefficient."""

    @property
    def max_grad_norm(self) -> float:
        """The gradient norm is clipped to this value."""

    @property
    def target_kl(self) -> float | None:
        """KL divergence beyond which the epochs of a batch end early; None for no limit."""
