"""What an algorithm must provide: a plan that says what lies in shared memory, and builds both ends of the training.

    Algorithm.plan(config, base, layout) -> Plan
        Plan.fields(...)           driver: the arena is laid out
        Plan(arena, share)         worker: its job (collect, and perhaps compute gradients)
        Plan.driver(parts)         driver: the collector and the learner that `Driver.train` runs

One file per algorithm in `train/algorithms/`; `config/algorithms.py` lists them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import torch
from torch import nn

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.batch import Trajectory
from paceline.config.train_config import TrainConfig
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.weights import Weights
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.exploring import EpsilonGreedy
from paceline.runtime.protocol import Job, Runtime, Share
from paceline.runtime.ray.transfer import Transfer
from paceline.spec import EnvSpec
from paceline.train.layout import Layout
from paceline.train.league import League
from paceline.train.loop import Driver
from paceline.train.worker_recipe import WorkerRecipe

J = TypeVar("J", bound=Job)

AnyDriver: TypeAlias = Driver[Trajectory] | Driver[int]
"""Algorithms that learn from rollouts take trajectories; with a replay, the number of gradient steps that are due."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverParts(Generic[J]):
    """What the driver has built already when a plan builds its collector and learner."""

    config: TrainConfig
    arena: Arena
    runtime: Runtime[J]
    """The workers, whose jobs the plan has built."""
    policy: nn.Module
    """The network that learns. Its parameters are views of `vector`."""
    vector: torch.Tensor
    """[P] the parameters, on the learner's device: shared memory, or private memory of the learner."""
    weights: Weights
    """The published weights."""
    mirror: nn.Module
    """The network with the published weights, on the CPU, for predictions."""
    obs_norm: ObsNormaliser | None
    reward_norm: RewardNormaliser | None
    tracker: EpisodeTracker
    clock: Clock
    league: League | None
    """In self-play: the opponents."""


class Plan(Protocol[J]):
    """One algorithm for one config. Pickled to every worker, so it holds recipes and settings, no live objects."""

    @property
    def base(self) -> WorkerRecipe:
        """How a worker builds its envs and its policy."""

    @property
    def alternates(self) -> bool:
        """Whether workers wait while the driver learns, and the driver waits while they collect."""

    @property
    def shares_gradients(self) -> bool:
        """Whether workers compute gradients of the driver's minibatches."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """The fields of the arena.

        Args:
            weights: Number of parameters.
            workers: Number of workers.
        """

    def weights(self, arena: Arena) -> Weights:
        """The published weights."""

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """For central inference: weights and statistics to act with, by name, and what updates them to the newest."""

    def local_gradient(self, arena: Arena) -> ShardedGradient | None:
        """The driver's own part of the gradients that it shares with workers; None if it shares none."""

    def transfer(self, weights: int) -> Transfer[J]:
        """What travels between the driver and the nodes of a Ray cluster.

        Raises:
            ConfigError: The algorithm needs all workers on one machine.
        """

    def stats(self) -> tuple[str, ...]:
        """Names of `train/` statistics beyond those that every algorithm reports."""

    def identity(self) -> Mapping[str, object]:
        """Settings that a resumed run must share with the earlier one."""

    def __call__(self, arena: Arena, share: Share) -> J:
        """Build the job of one worker. Runs inside the worker."""

    def driver(self, parts: DriverParts[J]) -> AnyDriver:
        """Build the collector and the learner. Runs in the driver, after the workers have started."""


def no_head(config: TrainConfig, spec: EnvSpec) -> EpsilonGreedy | None:  # noqa: ARG001 - see `Algorithm.head`
    """The network's outputs are parameters of the action distribution, as the action space demands."""
    return None


@dataclass(frozen=True, slots=True)
class Algorithm(Generic[J]):
    """An entry of the table of algorithms: what its file in `train/algorithms/` defines."""

    plan: Callable[[TrainConfig, WorkerRecipe, Layout], Plan[J]]
    """Make the plan of a config; raises ConfigError if env, settings or layout do not fit."""
    head: Callable[[TrainConfig, EnvSpec], EpsilonGreedy | None] = no_head
    """How a trained policy draws its actions, where the network's outputs are action values."""
