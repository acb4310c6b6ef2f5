"""What the rest of the program reads from the settings of any algorithm. Free of torch."""

from __future__ import annotations

from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig

NetworkOutputs = Literal["policy", "values", "dueling values"]
"""Meaning of the network's outputs: parameters of the action distribution, Q-values, or advantages and a value."""


class AlgorithmSettings(Protocol):
    """The section `training` of a config. Each algorithm has a frozen dataclass of its own with `SettingsDefaults`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def n_steps(self) -> int | None:
        """Steps each env takes before an update; None where something else decides."""

    @property
    def rollout_steps(self) -> int:
        """Steps that each env takes at a time (T)."""

    @property
    def learning_rate(self) -> float:
        """Learning rate at the start."""

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

    @property
    def asynchronous(self) -> bool:
        """Whether workers collect while the learner learns, each at its own pace."""

    @property
    def workers_learn(self) -> bool:
        """Whether workers update the weights themselves, on their own CPU cores."""

    @property
    def plays_episodes(self) -> bool:
        """Whether a batch is counted in episodes instead of steps."""

    @property
    def network_outputs(self) -> NetworkOutputs:
        """What the network's outputs mean."""

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:
        """Raise ConfigError where a setting of another section is not supported."""


class SettingsDefaults:
    """What suits a synchronous algorithm that learns from rollouts; the others override it."""

    __slots__ = ()

    n_steps: int | None

    @property
    def rollout_steps(self) -> int:
        """See `AlgorithmSettings.rollout_steps`."""
        return self.n_steps or 1

    @property
    def splits_batches(self) -> bool:
        """See `AlgorithmSettings.splits_batches`."""
        return False

    @property
    def asynchronous(self) -> bool:
        """See `AlgorithmSettings.asynchronous`."""
        return False

    @property
    def workers_learn(self) -> bool:
        """See `AlgorithmSettings.workers_learn`."""
        return False

    @property
    def plays_episodes(self) -> bool:
        """See `AlgorithmSettings.plays_episodes`."""
        return False

    @property
    def network_outputs(self) -> NetworkOutputs:
        """See `AlgorithmSettings.network_outputs`."""
        return "policy"

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:
        """See `AlgorithmSettings.check`: everything is supported."""
