"""The settings of A3C. A docstring under a field is its help text. Free of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.config.algorithm_settings import (
    AlgorithmSettings,
    Schedule,
    Scheduled,
    check_asynchronous,
    checked_schedule,
)
from paceline.errors import ConfigError, check_range

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class A3CConfig(AlgorithmSettings):
    """A3C: every worker updates shared weights with gradients from its own steps, without a lock."""

    n_steps: int = 32
    """Steps per slot: a worker's envs take this many steps before it updates the weights (T)."""
    learning_rate: Scheduled = 1e-3
    """Learning rate. Instead of a number: module:function of the remaining progress (1 to 0); in Python also a
    function."""
    lr_schedule: Schedule = "constant"
    """constant, or linear or cosine decay to 0 at the end of the budget."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """Optimiser. Its moments are shared by all workers."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """GAE lambda. 0: trust the critic (low variance); 1: Monte-Carlo returns (low bias)."""
    ent_coef: float = 0.0
    """Entropy bonus coefficient."""
    vf_coef: float = 0.5
    """Value loss coefficient."""
    max_grad_norm: float = 0.5
    """Clip the gradient norm to this value."""
    normalize_advantage: bool = True
    """Normalise advantages per slot to mean 0 and standard deviation 1."""
    lr_spread: float = 1.0
    """Give workers different learning rates, from learning_rate / this to learning_rate * this (log-spaced). 1: all
    equal."""
    ent_spread: float = 1.0
    """Give workers different entropy coefficients, from ent_coef / this to ent_coef * this (log-spaced). 1: all
    equal."""

    asynchronous: ClassVar[bool] = True
    workers_learn: ClassVar[bool] = True
    batch_size: ClassVar[int | None] = None
    batch_slots: ClassVar[int | None] = None
    slots_per_worker: ClassVar[int] = 2
    sync_every: ClassVar[int] = 1
    n_epochs: ClassVar[int] = 1
    grad_shards: ClassVar[int | None] = 1
    learner_threads: ClassVar[int] = 1
    clip_range: ClassVar[float] = math.inf
    clip_range_vf: ClassVar[float | None] = None
    target_kl: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("n_steps", self.n_steps, "Try 32.", at_least=1)
        rate = checked_schedule("learning_rate", self.learning_rate, self.lr_schedule, "Try 1e-3.")
        object.__setattr__(self, "learning_rate", rate)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("gae_lambda", self.gae_lambda, "Try 0.95.", at_least=0, at_most=1)
        check_range("ent_coef", self.ent_coef, "Use 0 for no entropy bonus.", at_least=0)
        check_range("vf_coef", self.vf_coef, "Try 0.5.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 0.5.", above=0)
        check_range("lr_spread", self.lr_spread, "Use 1 for the same learning rate in all workers.", at_least=1)
        if self.lr_spread != 1 and not isinstance(self.learning_rate, int | float):
            raise ConfigError(
                f"lr_spread={self.lr_spread}: needs a number as learning_rate, not a function. Use 1, or a number."
            )
        check_range("ent_spread", self.ent_spread, "Use 1 for the same coefficient in all workers.", at_least=1)

    def of_worker(self, worker: int, workers: int) -> A3CConfig:
        """The settings of one worker, with its own learning rate and entropy coefficient."""
        # From -1 (first worker) to 1 (last), so that the factors are log-spaced around 1.
        place = 2 * worker / (workers - 1) - 1 if workers > 1 else 0.0
        rate = self.learning_rate
        if isinstance(rate, int | float):
            rate *= self.lr_spread**place
        return replace(self, learning_rate=rate, ent_coef=self.ent_coef * self.ent_spread**place)

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:
        """See `AlgorithmSettings.check`."""
        check_asynchronous(env, run)
        if parallel.runtime == "ray":
            raise ConfigError(
                "runtime=ray: workers of a3c change shared weights in place, which needs one machine. Use impala, or "
                "leave --runtime out."
            )
        if parallel.asks_for_central_inference:
            raise ConfigError("inference='central': in a3c each worker acts with its own weights. Use impala.")
        if run.device not in ("auto", "cpu"):
            raise ConfigError(
                f"device={run.device!r}: in a3c the workers learn, each on its CPU core. Use --device cpu, or impala."
            )
