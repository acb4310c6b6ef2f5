"""The settings of DQN, free of torch so that the command line starts at once. See `settings` for the others."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.errors import ConfigError, check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class DQNConfig:
    """DQN: action values learned from a replay of past steps, which workers fill."""

    schedule: Literal["batch", "async"] = "batch"
    """batch: play, then learn, in turns; the same whatever the number of workers. async: both all the time."""
    episodes_per_batch: int = 4
    """Episodes that each group plays before learning, where n_steps is none. Those under way go on afterwards."""
    n_steps: int | None = None
    """Steps that each env takes before learning; none counts episodes instead. In async mode, steps of an order (none
    takes 16)."""
    learning_steps_per_batch: int | None = None
    """Updates after each batch; none takes groups * episodes_per_batch, or what samples_per_insert asks for."""
    samples_per_insert: float | None = None
    """How often each step is learned from on average: learning paced by the data. None takes 8 where nothing else says
    how much to learn."""
    spi_tolerance: float = 0.1
    """In async mode, how far players or learner may run ahead: this share of what learning_starts steps ask for."""
    learning_starts: int = 1000
    """Steps that are played before the first update."""
    buffer_size: int | str = 100_000
    """Room of the replay: transitions, or bytes with a unit (500MB, 8GB)."""
    save_replay: bool = True
    """Keep the replay in checkpoints. Without it a resumed run begins with an empty one."""
    batch_size: int = 64
    """Transitions of an update."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """Whether the learning rate stays, or falls to zero at the end of the budget."""
    gamma: float = 0.99
    """Discount of future rewards."""
    multi_step: int = 1
    """Rewards that are summed before the value of what follows is asked."""
    double: bool = True
    """The learner chooses the next action and the target network judges it, instead of both by the target network."""
    dueling: bool = True
    """Values of the state and of the actions are learned apart."""
    loss: Literal["huber", "mse"] = "huber"
    """What an error costs: huber is linear beyond 1."""
    target_update: int = 1000
    """Updates between copies of the weights to the target network."""
    tau: float | None = None
    """Instead: how far the target network moves towards the weights with every update (Polyak)."""
    prioritized: bool = False
    """Draw surprising transitions more often."""
    priority_alpha: float = 0.6
    """How much more often: 0 not at all, 1 in proportion to the error."""
    priority_beta: float = 0.4
    """How much of the bias of that is made good at first; rises to 1 at the end of the budget."""
    epsilon_start: float = 1.0
    """How often a random action is taken at first."""
    epsilon_end: float = 0.05
    """How often at last."""
    exploration_fraction: float = 0.2
    """Share of the budget over which epsilon falls evenly, where epsilon_decay is none."""
    epsilon_decay: float | None = None
    """Instead: what epsilon is multiplied by after every batch; in async mode, after every round of the learner."""
    epsilon_ladder: float = 0.0
    """Groups explore differently, from epsilon to epsilon to the power of one plus this (Ape-X: 7). 0: all the same."""
    max_grad_norm: float = 10.0
    """Gradients longer than this are shortened to it."""
    learner_threads: int = 1
    """Torch threads of the learner; with one, an MLP is learned in numpy. Part of the result: other counts round
    differently."""

    normalize_advantage: ClassVar[bool] = False
    grad_shards: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("episodes_per_batch", self.episodes_per_batch, "Try 4.", at_least=1)
        for name, hint in (("n_steps", "16"), ("learning_steps_per_batch", "64")):
            if (value := getattr(self, name)) is not None:
                check_range(name, value, f"Try {hint}, or leave it out.", at_least=1)
        if self.samples_per_insert is not None:
            check_range("samples_per_insert", self.samples_per_insert, "Try 8.", above=0)
        check_range("spi_tolerance", self.spi_tolerance, "Try 0.1.", above=0)
        check_range("learning_starts", self.learning_starts, "Try 1000.", at_least=1)
        buffer_room(self.buffer_size)
        check_range("batch_size", self.batch_size, "Try 64.", at_least=1)
        check_range("learning_rate", self.learning_rate, "Try 1e-3.", above=0)
        check_range("gamma", self.gamma, "Try 0.99.", at_least=0, at_most=1)
        check_range("multi_step", self.multi_step, "Try 1 or 3.", at_least=1)
        check_range("target_update", self.target_update, "Try 1000.", at_least=1)
        if self.tau is not None:
            check_range("tau", self.tau, "Try 0.005.", above=0, at_most=1)
        check_range("priority_alpha", self.priority_alpha, "Try 0.6.", at_least=0, at_most=1)
        check_range("priority_beta", self.priority_beta, "Try 0.4.", at_least=0, at_most=1)
        for name in ("epsilon_start", "epsilon_end", "exploration_fraction"):
            check_range(name, getattr(self, name), "It is a share.", at_least=0, at_most=1)
        if self.epsilon_decay is not None:
            check_range("epsilon_decay", self.epsilon_decay, "Try 0.995.", above=0, at_most=1)
        check_range("epsilon_ladder", self.epsilon_ladder, "Use 0 for the same everywhere.", at_least=0)
        check_range("max_grad_norm", self.max_grad_norm, "Try 10.", above=0)
        check_range("learner_threads", self.learner_threads, "Use 1 for small nets.", at_least=1)
        if self.learning_steps_per_batch is not None and self.samples_per_insert is not None:
            raise ConfigError(
                f"learning_steps_per_batch={self.learning_steps_per_batch} with samples_per_insert="
                f"{self.samples_per_insert:g}: both say how much to learn. Give one of the two."
            )
        if self.schedule == "async" and self.learning_steps_per_batch is not None:
            raise ConfigError(
                "learning_steps_per_batch: there are no batches in async mode. Use --samples-per-insert instead."
            )

    def identity(self) -> dict[str, Any]:
        """What a run that goes on must agree on with the one before: the replay is laid out by it."""
        names = ("schedule", "buffer_size", "multi_step", "prioritized", "save_replay")
        return {name: getattr(self, name) for name in names}

    @property
    def order_steps(self) -> int:
        """Rows that are collected in one go, where episodes are not counted."""
        return self.n_steps or 16

    @property
    def plays_episodes(self) -> bool:
        """Whether a batch is counted in episodes."""
        return self.schedule == "batch" and self.n_steps is None

    @property
    def spi(self) -> float | None:
        """Samples per insert; None where updates are counted by the batch."""
        if self.samples_per_insert is not None:
            return self.samples_per_insert
        return None if self.learning_steps_per_batch is not None or self.plays_episodes else 8.0


UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def buffer_room(size: int | str) -> tuple[int, bool]:
    """A capacity as a number, and whether that counts bytes.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kmgt]b)?\s*", size.lower())
        try:
            amount = float(match[1]) if match else math.nan
        except ValueError:
            amount = math.nan
        amount *= UNITS.get(match[2] or "", 1) if match else 1
        if match is None or not amount >= 1:
            raise ConfigError(f"buffer_size={size!r}: must be a number of transitions, or bytes as 500MB or 8GB.")
        return int(amount), match[2] is not None
    check_range("buffer_size", size, "Try 100000, or 1GB.", at_least=1)
    return size, False
