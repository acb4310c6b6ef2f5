"""The settings of each algorithm, free of torch so that the command line starts at once.

A docstring under a field is its help text. Ranges are checked here; relations with the
number of envs are checked where both are known, in `paceline.train.config`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from paceline.algos.dqn_settings import DQNConfig
from paceline.errors import ConfigError, check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig:
    """Proximal policy optimisation: how much to collect, and how to learn from it."""

    n_steps: int = 128
    """Steps each env takes before an update (T)."""
    batch_size: int | None = None
    """Steps in a minibatch: must divide n_steps * n_envs, or be at least that for one full batch. None takes the
    largest divisor up to 1024."""
    n_epochs: int = 4
    """Passes over each batch."""
    learning_rate: float = 3e-4
    """Step size of Adam."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """Whether the learning rate stays, or falls to zero at the end of the budget."""
    gamma: float = 0.99
    """Discount of future rewards."""
    gae_lambda: float = 0.95
    """Bias against variance of the advantage: 0 trusts the value net, 1 the observed returns."""
    clip_range: float = 0.2
    """How far a new action probability may move from the old one, as a ratio."""
    clip_range_vf: float | None = None
    """How far a new value may move from the old one; none leaves it free."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    normalize_advantage: bool = True
    """Give the advantages of each minibatch mean 0 and deviation 1."""
    target_kl: float | None = None
    """Ends the epochs of an update once the policy has moved this far; none never does."""
    grad_shards: int | None = None
    """Pieces of a minibatch whose gradients workers compute side by side. None takes up to 2 of at least 128 rows (64
    with layers of 128 units and more), for images up to 8 of at least 64. Part of the result: other counts round
    differently."""
    pipeline: bool = False
    """Collect the next batch while learning from this one. Every batch is then one update old: part of the result."""
    learner_threads: int = 1
    """Torch threads of the learner; with one, an MLP is learned in numpy. Part of the result: other counts round
    differently."""

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
            check_range("clip_range_vf", self.clip_range_vf, "Use none to leave the value free.", above=0)
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
                "batch_size=1: one advantage has no deviation to normalise by (normalize_advantage=True). "
                "Use a batch_size of at least 2, or normalize_advantage=False."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpalaConfig:
    """IMPALA: workers never wait for each other or for the learner; V-trace corrects for weights that moved on."""

    n_steps: int = 32
    """Steps of a slot: what a worker's envs take with one copy of the weights (T)."""
    batch_slots: int | None = None
    """Slots of workers that make a batch, first ready first. None takes as many as there are workers."""
    batch_size: int | None = None
    """Steps in a minibatch. None takes the largest divisor of n_steps * n_envs up to 1024."""
    n_epochs: int = 1
    """Passes over each batch."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """Whether the learning rate stays, or falls to zero at the end of the budget."""
    gamma: float = 0.99
    """Discount of future rewards."""
    vtrace_lambda: float = 0.95
    """Weight of longer returns in V-trace; 1 is the paper's."""
    rho_clip: float = 1.0
    """Largest importance weight of a step's own error."""
    c_clip: float = 1.0
    """Largest importance weight of what comes later."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    normalize_advantage: bool = True
    """Give the advantages of each minibatch mean 0 and deviation 1."""
    max_lag: int = 8
    """Updates that the weights may have had since a slot was begun."""
    on_lag: Literal["stall", "drop", "mask"] = "stall"
    """What becomes of slots that would be older: the learner waits for them in time, leaves them out, or gives them
    their place in a batch without counting them."""
    sync_every: int = 1
    """Slots that a worker collects with one copy of the weights."""
    slots_per_worker: int = 2
    """Slots that a worker may have full or be filling. With all of them full, it rests."""
    grad_shards: int | None = None
    """Pieces of a minibatch, computed one after another. None takes 1."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class APPOConfig(ImpalaConfig):
    """APPO: IMPALA with PPO's clipped surrogate, so that a batch can be learned from more than once."""

    n_epochs: int = 2
    """Passes over each batch."""
    learning_rate: float = 5e-4
    """Step size of Adam."""
    clip_range: float = 0.2  # type: ignore[misc]  # a setting here, and none of IMPALA's
    """How far a new action probability may move from the old one, as a ratio."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super(APPOConfig, self).__post_init__()
        check_range("clip_range", self.clip_range, "Try 0.2.", above=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class A3CConfig:
    """A3C: every worker learns from what it collects, and changes the shared weights without a lock."""

    n_steps: int = 32
    """Steps of a slot: what a worker's envs take before it learns (T)."""
    learning_rate: float = 1e-3
    """Step size."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """Whether the learning rate stays, or falls to zero at the end of the budget."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """What turns gradients into steps; its statistics are shared by all workers."""
    gamma: float = 0.99
    """Discount of future rewards."""
    gae_lambda: float = 0.95
    """Bias against variance of the advantage: 0 trusts the value net, 1 the observed returns."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    normalize_advantage: bool = True
    """Give the advantages of each slot mean 0 and deviation 1."""
    lr_spread: float = 1.0
    """Workers have different learning rates, from learning_rate divided by this to learning_rate times this."""
    ent_spread: float = 1.0
    """The same for ent_coef: some workers explore more than others."""

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
        check_range("lr_spread", self.lr_spread, "Use 1 for the same everywhere.", at_least=1)
        check_range("ent_spread", self.ent_spread, "Use 1 for the same everywhere.", at_least=1)

    def of_worker(self, worker: int, workers: int) -> A3CConfig:
        """The settings of one of the workers."""
        # From -1 for the first to 1 for the last, so that factors lie evenly around 1 on a scale of ratios.
        place = 2 * worker / (workers - 1) - 1 if workers > 1 else 0.0
        return replace(
            self,
            learning_rate=self.learning_rate * self.lr_spread**place,
            ent_coef=self.ent_coef * self.ent_spread**place,
        )


Settings = PPOConfig | ImpalaConfig | APPOConfig | A3CConfig
"""Of algorithms that learn from rollouts."""

AnySettings = Settings | DQNConfig
"""What the section `training` may hold."""

SETTINGS: dict[str, type[AnySettings]] = {
    "ppo": PPOConfig,
    "impala": ImpalaConfig,
    "appo": APPOConfig,
    "a3c": A3CConfig,
    "dqn": DQNConfig,
}
"""Every algorithm that can be trained, by the name the user types."""

ASYNC = ("impala", "appo", "a3c")
"""Those whose workers do not wait."""
