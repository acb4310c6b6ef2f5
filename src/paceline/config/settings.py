"""The settings of each algorithm. Does not import torch, so that the command line starts quickly.

A docstring under a field is its help text. Ranges are checked here; relations with the
number of envs are checked where both are known, in `paceline.config.train_config`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.config.algorithm_settings import SettingsDefaults
from paceline.errors import ConfigError, check_range

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(SettingsDefaults):
    """Proximal policy optimisation: rollout, minibatch and loss settings."""

    n_steps: int = 128
    """Steps each env takes before an update (T)."""
    batch_size: int | None = None
    """Minibatch size in steps. Must divide n_steps * n_envs, or be at least that for one full batch. Default: the
    largest divisor up to 1024."""
    n_epochs: int = 4
    """Epochs: passes over each rollout."""
    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """constant, or linear decay to 0 at the end of the budget."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """GAE lambda. 0: trust the critic (low variance); 1: Monte-Carlo returns (low bias)."""
    clip_range: float = 0.2
    """PPO clip range of the probability ratio: 1 +/- this."""
    clip_range_vf: float | None = None
    """Clip range of the value function. Default: no clipping."""
    ent_coef: float = 0.0
    """Entropy bonus coefficient."""
    vf_coef: float = 0.5
    """Value loss coefficient."""
    max_grad_norm: float = 0.5
    """Clip the gradient norm to this value."""
    normalize_advantage: bool = True
    """Normalise advantages per minibatch to mean 0 and standard deviation 1."""
    target_kl: float | None = None
    """Stop the epochs of an update when the approximate KL divergence exceeds this. Default: never."""
    grad_shards: int | None = None
    """Split each minibatch into this many shards, whose gradients the workers compute in parallel. The default is fine,
    see `paceline tune`: 1 or 2 of at least 128 rows (64 with layers of 128 units or more), for images up to 8 of at
    least 64. Changes the weights (floating-point rounding)."""
    pipeline: bool = False
    """Collect the next rollout while learning from this one. Each rollout is then one update old, which changes the
    weights."""
    learner_threads: int = 1
    """Torch threads of the learner. With 1, an MLP is trained in numpy. Changes the weights (floating-point
    rounding)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("n_steps", self.n_steps, "Try 128.", at_least=1)
        if self.batch_size is not None:
            check_range("batch_size", self.batch_size, "Try 1024.", at_least=1)
        check_range("n_epochs", self.n_epochs, "Try 4.", at_least=1)
        check_range("learning_rate", self.learning_rate, "Try 3e-4.", above=0)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("gae_lambda", self.gae_lambda, "Try 0.95.", at_least=0, at_most=1)
        check_range("clip_range", self.clip_range, "Try 0.2.", above=0)
        if self.clip_range_vf is not None:
            check_range("clip_range_vf", self.clip_range_vf, "Use none for no clipping.", above=0)
        check_range("ent_coef", self.ent_coef, "Use 0 for no entropy bonus.", at_least=0)
        check_range("vf_coef", self.vf_coef, "Try 0.5.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 0.5.", above=0)
        if self.target_kl is not None:
            check_range("target_kl", self.target_kl, "Use none to run every epoch.", above=0)
        if self.grad_shards is not None:
            check_range("grad_shards", self.grad_shards, "Use 1 to compute minibatches whole.", at_least=1, at_most=127)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.normalize_advantage and self.batch_size == 1:
            raise ConfigError(
                "batch_size=1: one advantage has no standard deviation (normalize_advantage=True). "
                "Use a batch_size of at least 2, or normalize_advantage=False."
            )

    @property
    def splits_batches(self) -> bool:
        """See `AlgorithmSettings.splits_batches`."""
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpalaConfig(SettingsDefaults):
    """IMPALA: asynchronous actors without barriers; V-trace corrects for their policy lag."""

    n_steps: int = 32
    """Steps per slot: a worker's envs take this many steps with one copy of the weights (T)."""
    batch_slots: int | None = None
    """Slots per batch, taken in the order in which they fill. Default: the number of workers."""
    batch_size: int | None = None
    """Minibatch size in steps. Default: the largest divisor of n_steps * n_envs up to 1024."""
    n_epochs: int = 1
    """Epochs: passes over each batch."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """constant, or linear decay to 0 at the end of the budget."""
    gamma: float = 0.99
    """Discount factor."""
    vtrace_lambda: float = 0.95
    """V-trace lambda; 1 as in the IMPALA paper."""
    rho_clip: float = 1.0
    """V-trace rho-bar: clips the importance weight of each temporal-difference error."""
    c_clip: float = 1.0
    """V-trace c-bar: clips the importance weights that carry later errors back (the trace)."""
    ent_coef: float = 0.0
    """Entropy bonus coefficient."""
    vf_coef: float = 0.5
    """Value loss coefficient."""
    max_grad_norm: float = 0.5
    """Clip the gradient norm to this value."""
    normalize_advantage: bool = True
    """Normalise advantages per minibatch to mean 0 and standard deviation 1."""
    max_lag: int = 8
    """Largest allowed policy lag: updates since the slot's weights were copied."""
    on_lag: Literal["stall", "drop", "mask"] = "stall"
    """What to do with slots above max_lag. stall: the learner waits for workers, so that none occur. drop: leave them
    out of the batch. mask: keep their place in the batch with loss weight 0."""
    sync_every: int = 1
    """Slots that a worker collects before it copies the newest weights."""
    slots_per_worker: int = 2
    """Slots per worker, full or being filled. A worker whose slots are all full waits."""
    grad_shards: int | None = None
    """Split each minibatch into this many shards, computed one after another. Default: 1."""
    learner_threads: int = 1
    """Torch threads of the learner."""

    clip_range: ClassVar[float] = math.inf
    clip_range_vf: ClassVar[float | None] = None
    target_kl: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("n_steps", self.n_steps, "Try 32.", at_least=1)
        for name in ("batch_slots", "batch_size", "grad_shards"):
            if (value := getattr(self, name)) is not None:
                check_range(name, value, "Leave it out.", at_least=1)
        check_range("n_epochs", self.n_epochs, "Try 1.", at_least=1)
        check_range("learning_rate", self.learning_rate, "Try 1e-3.", above=0)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("vtrace_lambda", self.vtrace_lambda, "Try 0.95.", at_least=0, at_most=1)
        check_range("rho_clip", self.rho_clip, "Try 1.", above=0)
        check_range("c_clip", self.c_clip, "Try 1.", above=0)
        check_range("ent_coef", self.ent_coef, "Use 0 for no entropy bonus.", at_least=0)
        check_range("vf_coef", self.vf_coef, "Try 0.5.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 0.5.", above=0)
        check_range("max_lag", self.max_lag, "Try 8.", at_least=1)
        check_range("sync_every", self.sync_every, "Try 1.", at_least=1)
        check_range("slots_per_worker", self.slots_per_worker, "Try 2.", at_least=1)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.sync_every > self.max_lag:
            raise ConfigError(
                f"sync_every={self.sync_every}: must not be above max_lag={self.max_lag}, or a worker's copy of the "
                "weights would become too old. Lower it, or raise --max-lag."
            )

    @property
    def proximal(self) -> bool:
        """Whether the loss is PPO's clipped surrogate."""
        return False

    @property
    def splits_batches(self) -> bool:
        """See `AlgorithmSettings.splits_batches`."""
        return True

    @property
    def asynchronous(self) -> bool:
        """See `AlgorithmSettings.asynchronous`."""
        return True

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:  # noqa: ARG002
        """See `AlgorithmSettings.check`."""
        check_asynchronous(env, run)


@dataclass(frozen=True, kw_only=True, slots=True)
class APPOConfig(ImpalaConfig):
    """APPO: IMPALA with PPO's clipped surrogate loss, which allows several epochs per batch."""

    n_epochs: int = 2
    """Epochs: passes over each batch."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    clip_range: float = 0.2  # type: ignore[misc]  # a field here, a constant in ImpalaConfig
    """PPO clip range of the probability ratio: 1 +/- this."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super(APPOConfig, self).__post_init__()
        check_range("clip_range", self.clip_range, "Try 0.2.", above=0)

    @property
    def proximal(self) -> bool:
        """Whether the loss is PPO's clipped surrogate."""
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class A3CConfig(SettingsDefaults):
    """A3C: every worker computes gradients from its own steps and updates shared weights without a lock."""

    n_steps: int = 32
    """Steps per slot: a worker's envs take this many steps before it updates the weights (T)."""
    learning_rate: float = 1e-3
    """Learning rate."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """constant, or linear decay to 0 at the end of the budget."""
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
        check_range("learning_rate", self.learning_rate, "Try 1e-3.", above=0)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("gae_lambda", self.gae_lambda, "Try 0.95.", at_least=0, at_most=1)
        check_range("ent_coef", self.ent_coef, "Use 0 for no entropy bonus.", at_least=0)
        check_range("vf_coef", self.vf_coef, "Try 0.5.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 0.5.", above=0)
        check_range("lr_spread", self.lr_spread, "Use 1 for the same learning rate in all workers.", at_least=1)
        check_range("ent_spread", self.ent_spread, "Use 1 for the same coefficient in all workers.", at_least=1)

    def of_worker(self, worker: int, workers: int) -> A3CConfig:
        """The settings of one worker, with its own learning rate and entropy coefficient."""
        # From -1 (first worker) to 1 (last), so that the factors are log-spaced around 1.
        place = 2 * worker / (workers - 1) - 1 if workers > 1 else 0.0
        return replace(
            self,
            learning_rate=self.learning_rate * self.lr_spread**place,
            ent_coef=self.ent_coef * self.ent_spread**place,
        )

    @property
    def asynchronous(self) -> bool:
        """See `AlgorithmSettings.asynchronous`."""
        return True

    @property
    def workers_learn(self) -> bool:
        """See `AlgorithmSettings.workers_learn`."""
        return True

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


Settings = PPOConfig | ImpalaConfig | APPOConfig | A3CConfig
"""Settings of the algorithms that learn from rollouts."""
