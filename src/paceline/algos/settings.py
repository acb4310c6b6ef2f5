"""The settings of each algorithm, free of torch so that the command line starts at once.

A docstring under a field is its help text. Ranges are checked here; relations with the
number of envs are checked where both are known, in `paceline.train.config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    """Pieces of a minibatch whose gradients workers compute side by side. None takes up to 2 of at least 256 rows, for
    images up to 8 of at least 64. Part of the result: other counts round differently."""
    pipeline: bool = False
    """Collect the next batch while learning from this one. Every batch is then one update old: part of the result."""
    learner_threads: int = 1
    """Torch threads of the learner. Part of the result: other counts round differently."""

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
            check_range("grad_shards", self.grad_shards, "Use 1 to compute minibatches whole.", at_least=1, at_most=255)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.normalize_advantage and self.batch_size == 1:
            raise ConfigError(
                "batch_size=1: one advantage has no deviation to normalise by (normalize_advantage=True). "
                "Use a batch_size of at least 2, or normalize_advantage=False."
            )


SETTINGS: dict[str, type[PPOConfig]] = {"ppo": PPOConfig}
"""Every algorithm that can be trained, by the name the user types."""
