"""The settings of DQN. Does not import torch, so that the command line starts quickly. See also `settings`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from paceline.config.algorithm_settings import AlgorithmSettings, NetworkOutputs, Schedule, Scheduled, checked_schedule
from paceline.errors import ConfigError, check_optional, check_range

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class DQNConfig(AlgorithmSettings):
    """DQN: action values learned from a replay buffer that the workers fill."""

    schedule: Literal["batch", "async"] = "batch"
    """batch: collect, then update, in turns; same weights for any number of workers. async: collect and update at the
    same time."""
    episodes_per_batch: int | None = None
    """Episodes per group between updates, instead of n_steps. Unfinished episodes continue in the next batch."""
    n_steps: int | None = None
    """Steps per env between updates; in async mode, steps per slot. Default: 4, or 16 in async mode, unless
    episodes_per_batch is given."""
    learning_steps_per_batch: int | None = None
    """Gradient steps after each batch. Default: as many as samples_per_insert requires; with episodes_per_batch, groups
    * episodes_per_batch."""
    samples_per_insert: float | None = None
    """Replay ratio: average number of times each step is sampled. Default: 32, where learning_steps_per_batch and
    episodes_per_batch do not apply."""
    spi_tolerance: float = 0.1
    """Async: allowed drift from samples_per_insert, as a fraction of the samples due after learning_starts steps."""
    learning_starts: int = 1000
    """Steps collected before the first update."""
    buffer_size: int | str = 100_000
    """Replay buffer size in transitions, or in bytes with a unit (500MB, 8GB)."""
    save_replay: bool = True
    """Save the replay buffer in checkpoints. If false, a resumed run starts with an empty buffer."""
    batch_size: int = 64
    """Minibatch size in transitions."""
    learning_rate: Scheduled = 1e-3
    """Learning rate of Adam. Instead of a number: module:function of the remaining progress (1 to 0); in Python also a
    function."""
    lr_schedule: Schedule = "linear"
    """constant, or linear or cosine decay to 0 at the end of the budget. A function as learning_rate replaces the
    default."""
    gamma: float = 0.99
    """Discount factor."""
    multi_step: int = 3
    """n-step return length."""
    double: bool = True
    """Double DQN: the online network chooses the next action, the target network evaluates it."""
    dueling: bool = True
    """Dueling network: separate state-value and advantage streams."""
    loss: Literal["huber", "mse"] = "huber"
    """Loss of the temporal-difference error; huber is linear beyond 1."""
    target_update: int = 100
    """Updates between copies of the weights to the target network."""
    tau: float | None = None
    """Polyak rate of the target network, applied at every update; replaces target_update."""
    prioritized: bool = False
    """Prioritised replay: sample transitions with large errors more often."""
    priority_alpha: float = 0.6
    """Prioritisation exponent (alpha). 0: uniform; 1: proportional to the error."""
    priority_beta: float = 0.4
    """Initial importance-sampling exponent (beta); rises to 1 at the end of the budget."""
    epsilon_start: float = 1.0
    """Initial epsilon: probability of a random action."""
    epsilon_end: float = 0.05
    """Final epsilon."""
    exploration_fraction: float = 0.1
    """Fraction of the budget over which epsilon decays linearly, if epsilon_decay is not given."""
    epsilon_decay: float | None = None
    """Multiply epsilon by this after every batch (async: after every round of the learner); replaces
    exploration_fraction."""
    epsilon_ladder: float = 0.0
    """Give groups different epsilons, from epsilon to epsilon ** (1 + this), as Ape-X does with 7. 0: all equal."""
    max_grad_norm: float = 10.0
    """Clip the gradient norm to this value."""
    learner_threads: int = 1
    """Torch threads of the learner. With 1, an MLP is trained in numpy. Changes the weights (floating-point
    rounding)."""

    normalize_advantage: ClassVar[bool] = False
    grad_shards: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, hint in (("episodes_per_batch", "4"), ("n_steps", "4"), ("learning_steps_per_batch", "64")):
            check_optional(name, getattr(self, name), f"Try {hint}, or leave it out.", at_least=1)
        check_optional("samples_per_insert", self.samples_per_insert, "Try 32.", above=0)
        check_range("spi_tolerance", self.spi_tolerance, "Try 0.1.", above=0)
        check_range("learning_starts", self.learning_starts, "Try 1000.", at_least=1)
        buffer_room(self.buffer_size)
        check_range("batch_size", self.batch_size, "Try 64.", at_least=1)
        if self.lr_schedule == "linear" and not isinstance(self.learning_rate, int | float):
            object.__setattr__(self, "lr_schedule", "constant")
        rate = checked_schedule("learning_rate", self.learning_rate, self.lr_schedule, "Try 1e-3.")
        object.__setattr__(self, "learning_rate", rate)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("multi_step", self.multi_step, "Try 1 or 3.", at_least=1)
        check_range("target_update", self.target_update, "Try 100.", at_least=1)
        check_optional("tau", self.tau, "Try 0.005.", above=0, at_most=1)
        check_range("priority_alpha", self.priority_alpha, "Try 0.6.", at_least=0, at_most=1)
        check_range("priority_beta", self.priority_beta, "Try 0.4.", at_least=0, at_most=1)
        for name in ("epsilon_start", "epsilon_end", "exploration_fraction"):
            check_range(name, getattr(self, name), "It is a fraction.", at_least=0, at_most=1)
        check_optional("epsilon_decay", self.epsilon_decay, "Try 0.995.", above=0, at_most=1)
        check_range("epsilon_ladder", self.epsilon_ladder, "Use 0 for the same epsilon in all groups.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 10.", above=0)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.learning_steps_per_batch is not None and self.samples_per_insert is not None:
            raise ConfigError(
                f"learning_steps_per_batch={self.learning_steps_per_batch} with samples_per_insert="
                f"{self.samples_per_insert:g}: both set the number of updates. Give one of the two."
            )
        if self.schedule == "async" and self.learning_steps_per_batch is not None:
            raise ConfigError(
                "learning_steps_per_batch: there are no batches in async mode. Use --samples-per-insert instead."
            )

    @property
    def rollout_steps(self) -> int:
        """Steps per env between updates (async: per slot), if batches are not counted in episodes."""
        return self.n_steps or (16 if self.asynchronous else 4)

    @property
    def asynchronous(self) -> bool:
        """See `AlgorithmSettings.asynchronous`."""
        return self.schedule == "async"

    @property
    def network_outputs(self) -> NetworkOutputs:
        """See `AlgorithmSettings.network_outputs`."""
        return "dueling values" if self.dueling else "values"

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:  # noqa: ARG002
        """See `AlgorithmSettings.check`."""
        for name, asked in (("normalize_obs", env.normalize_obs), ("normalize_reward", env.normalize_reward)):
            if asked:
                raise ConfigError(
                    f"{name}: unsupported with dqn, replayed data would be scaled by newer statistics. "
                    "Scale in a wrapper, or use ppo."
                )
        if run.trust_env_state:
            raise ConfigError(
                "trust_env_state: unsupported with dqn, which restores envs by replaying their episodes. Leave it out."
            )

    def identity(self) -> dict[str, Any]:
        """Settings that a resumed run must share with the earlier one, because they define the replay layout."""
        names = ("schedule", "buffer_size", "multi_step", "prioritized", "save_replay")
        return {name: getattr(self, name) for name in names}

    @property
    def plays_episodes(self) -> bool:
        """Whether a batch is counted in episodes."""
        return self.schedule == "batch" and self.n_steps is None and self.episodes_per_batch is not None

    @property
    def spi(self) -> float | None:
        """Samples per insert; None if the number of updates per batch is fixed."""
        if self.samples_per_insert is not None:
            return self.samples_per_insert
        return None if self.learning_steps_per_batch is not None or self.plays_episodes else 32.0


UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def buffer_room(size: int | str) -> tuple[int, bool]:
    """Parse a replay capacity; returns the number and whether it counts bytes instead of transitions.

    Raises:
        ConfigError: It is neither a number of transitions nor a size in bytes.
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:e\d+)?)\s*([kmgt]b)?\s*", size.lower())
        amount = float(match[1]) * UNITS.get(match[2], 1) if match else 0.0
        if match is None or not 1 <= amount < math.inf:
            raise ConfigError(f"buffer_size={size!r}: must be a number of transitions, or bytes as 500MB or 8GB.")
        return int(amount), match[2] is not None
    check_range("buffer_size", size, "Try 100000, or 1GB.", at_least=1)
    return size, False
