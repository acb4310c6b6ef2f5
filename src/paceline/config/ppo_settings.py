"""The settings of PPO. A docstring under a field is its help text. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.config.algorithm_settings import AlgorithmSettings, Schedule, Scheduled, checked_schedule
from paceline.errors import ConfigError, check_optional, check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(AlgorithmSettings):
    """PPO: all envs collect a rollout, then the weights are updated from minibatches of it."""

    n_steps: int = 64
    """Steps each env takes before an update (T)."""
    batch_size: int | None = None
    """Minibatch size in steps. Must divide n_steps * n_envs, or be at least that for one full batch. Default: the
    largest divisor up to 256."""
    n_epochs: int = 10
    """Epochs: passes over each rollout."""
    learning_rate: Scheduled = 1e-3
    """Learning rate of Adam. Instead of a number: module:function of the remaining progress (1 to 0); in Python also a
    function."""
    lr_schedule: Schedule = "constant"
    """constant, or linear or cosine decay to 0 at the end of the budget."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """GAE lambda. 0: trust the critic (low variance); 1: Monte-Carlo returns (low bias)."""
    clip_range: Scheduled = 0.2
    """PPO clip range of the probability ratio: 1 +/- this. Also a function, as learning_rate."""
    clip_schedule: Schedule = "constant"
    """Schedule of clip_range: constant, or linear or cosine decay to 0 at the end of the budget."""
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
    """Split each minibatch into this many shards, whose gradients the workers compute in parallel. `paceline tune`
    measures which number is fastest. Changes the weights (floating-point rounding). Default: 1 or 2 of at least 128
    rows (64 with layers of 128 units or more), for images up to 8 of at least 64."""
    pipeline: bool = False
    """Collect the next rollout while learning from this one. Each rollout is then one update old, which changes the
    weights."""
    learner_threads: int = 1
    """Torch threads of the learner. With 1, an MLP is trained in numpy. Changes the weights (floating-point
    rounding)."""

    splits_batches: ClassVar[bool] = True
    largest_default_batch: ClassVar[int] = 256
    normalizes_reward: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("n_steps", self.n_steps, "Try 64.", at_least=1)
        check_optional("batch_size", self.batch_size, "Try 256.", at_least=1)
        check_range("n_epochs", self.n_epochs, "Try 10.", at_least=1)
        rate = checked_schedule("learning_rate", self.learning_rate, self.lr_schedule, "Try 1e-3.")
        object.__setattr__(self, "learning_rate", rate)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("gae_lambda", self.gae_lambda, "Try 0.95.", at_least=0, at_most=1)
        clip = checked_schedule("clip_range", self.clip_range, self.clip_schedule, "Try 0.2.")
        object.__setattr__(self, "clip_range", clip)
        check_optional("clip_range_vf", self.clip_range_vf, "Use none for no clipping.", above=0)
        check_range("ent_coef", self.ent_coef, "Use 0 for no entropy bonus.", at_least=0)
        check_range("vf_coef", self.vf_coef, "Try 0.5.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 0.5.", above=0)
        check_optional("target_kl", self.target_kl, "Use none to run every epoch.", above=0)
        check_optional("grad_shards", self.grad_shards, "Use 1 to compute minibatches whole.", at_least=1, at_most=127)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.normalize_advantage and self.batch_size == 1:
            raise ConfigError(
                "batch_size=1: one advantage has no standard deviation (normalize_advantage=True). "
                "Use a batch_size of at least 2, or normalize_advantage=False."
            )
