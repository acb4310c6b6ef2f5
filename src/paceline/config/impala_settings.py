"""The settings of IMPALA and APPO. A docstring under a field is its help text. Free of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.config.algorithm_settings import (
    AlgorithmSettings,
    Schedule,
    Scheduled,
    check_asynchronous,
    checked_schedule,
)
from paceline.errors import ConfigError, check_optional, check_range

if TYPE_CHECKING:
    from paceline.config.sections import EnvConfig, ParallelConfig, RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpalaConfig(AlgorithmSettings):
    """IMPALA: workers collect while the learner learns, and V-trace corrects for their older weights."""

    n_steps: int = 32
    """Steps per slot: a worker's envs take this many steps with one copy of the weights (T)."""
    batch_slots: int | None = None
    """Slots per batch. Of the full slots, those with the oldest weights come first. Default: the number of workers."""
    batch_size: int | None = None
    """Minibatch size in steps. Default: the largest divisor of n_steps * n_envs up to 1024."""
    n_epochs: int = 1
    """Epochs: passes over each batch."""
    learning_rate: Scheduled = 1e-3
    """Learning rate of Adam. Instead of a number: module:function of the remaining progress (1 to 0); in Python also a
    function."""
    lr_schedule: Schedule = "constant"
    """constant, or linear or cosine decay to 0 at the end of the budget."""
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
    """What to do with slots above max_lag. stall: the learner waits for workers that collect with old weights, so that
    hardly any slot is too old, and leaves out those that are. drop: leave them out of the batch. mask: keep their place
    in the batch with loss weight 0."""
    sync_every: int = 1
    """Slots that a worker collects before it copies the newest weights."""
    slots_per_worker: int = 2
    """Slots per worker, full or being filled. A worker whose slots are all full waits."""
    grad_shards: int | None = None
    """Split each minibatch into this many shards, computed one after another. Default: 1."""
    learner_threads: int = 1
    """Torch threads of the learner."""

    asynchronous: ClassVar[bool] = True
    splits_batches: ClassVar[bool] = True
    proximal: ClassVar[bool] = False
    """Whether the loss is PPO's clipped surrogate."""
    clip_range: ClassVar[float] = math.inf
    clip_range_vf: ClassVar[float | None] = None
    target_kl: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("n_steps", self.n_steps, "Try 32.", at_least=1)
        for name in ("batch_slots", "batch_size", "grad_shards"):
            check_optional(name, getattr(self, name), "Leave it out.", at_least=1)
        check_range("n_epochs", self.n_epochs, "Try 1.", at_least=1)
        rate = checked_schedule("learning_rate", self.learning_rate, self.lr_schedule, "Try 1e-3.")
        object.__setattr__(self, "learning_rate", rate)
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

    def check(self, env: EnvConfig, parallel: ParallelConfig, run: RunConfig) -> None:  # noqa: ARG002
        """See `AlgorithmSettings.check`."""
        check_asynchronous(env, run)


@dataclass(frozen=True, kw_only=True, slots=True)
class APPOConfig(ImpalaConfig):
    """APPO: IMPALA with PPO's clipped surrogate loss, which allows several epochs per batch."""

    n_epochs: int = 2
    """Epochs: passes over each batch."""
    learning_rate: Scheduled = 5e-4
    """Learning rate of Adam. Instead of a number: module:function of the remaining progress (1 to 0); in Python also a
    function."""
    clip_range: Scheduled = 0.2  # type: ignore[misc, assignment]  # a field here, a constant in ImpalaConfig
    """PPO clip range of the probability ratio: 1 +/- this. Also a function, as learning_rate."""
    clip_schedule: Schedule = "constant"
    """Schedule of clip_range: constant, or linear or cosine decay to 0 at the end of the budget."""

    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        super(APPOConfig, self).__post_init__()
        clip = checked_schedule("clip_range", self.clip_range, self.clip_schedule, "Try 0.2.")
        object.__setattr__(self, "clip_range", clip)
