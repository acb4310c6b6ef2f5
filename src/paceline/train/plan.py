"""The interface of an algorithm: a plan that lists the fields of shared memory and builds jobs, collector and learner.

    Algorithm.plan(config, base, layout) -> Plan
        Plan.fields(...)           driver: lists the fields of the arena
        Plan(arena, share)         worker: builds the job (collects, and for some algorithms computes gradients)
        Plan.driver(parts)         driver: builds the collector and the learner that `Driver.train` runs

One file per algorithm in `train/algorithms/`; `config/algorithms.py` lists them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Self, TypeAlias

import torch
from torch import nn

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.batch import Trajectory
from paceline.config.train_config import TrainConfig
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.weights import Snapshots, Weights
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.exploring import EpsilonGreedy
from paceline.runtime.protocol import J, Runtime, Share
from paceline.runtime.ray.transfer import GroupRange, Transfer
from paceline.spec import EnvSpec
from paceline.train.layout import Layout
from paceline.train.league import League
from paceline.train.loop import Driver
from paceline.train.worker_recipe import WorkerRecipe

AnyDriver: TypeAlias = Driver[Trajectory] | Driver[int]
"""The batch is a trajectory for rollouts, and the number of gradient steps that are due for a replay buffer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverParts(Generic[J]):
    """The objects from which a plan builds its collector and learner. The driver builds them first."""

    config: TrainConfig
    arena: Arena
    runtime: Runtime[J]
    """The workers, with jobs that the plan has built."""
    policy: nn.Module
    """The network that learns. Its parameters are views of `vector`."""
    vector: torch.Tensor
    """[P] the parameters on the learner's device, in shared memory or in private memory of the learner."""
    weights: Weights
    """The published weights, which workers read."""
    mirror: nn.Module
    """A copy of the network on the CPU whose parameters are the published weights, for predictions."""
    obs_norm: ObsNormaliser | None
    reward_norm: RewardNormaliser | None
    tracker: EpisodeTracker
    clock: Clock
    league: League | None
    """The opponents of self-play; None without self-play."""


@dataclass(frozen=True, kw_only=True)
class Plan(ABC, Generic[J]):
    """One algorithm with one config. Pickled to every worker, so it holds recipes and settings, no live objects."""

    base: WorkerRecipe
    """The recipe by which a worker builds its envs and its policy."""

    @property
    def alternates(self) -> bool:
        """Whether workers wait while the driver learns, and the driver waits while they collect."""
        return False

    @property
    def shares_gradients(self) -> bool:
        """Whether workers compute gradients of the driver's minibatches."""
        return False

    @property
    def acts_on_snapshots(self) -> bool:
        """Whether workers act with copies of snapshots of the weights, because the learner does not wait for them."""
        return False

    @abstractmethod
    def fields(self, weights: int, workers: int) -> list[Field]:
        """Return the fields of the arena.

        Args:
            weights: Number of parameters.
            workers: Number of workers.
        """

    def weights(self, arena: Arena) -> Weights:
        """Return a view of the published weights in the arena."""
        return Weights(arena, self.snapshots(arena))

    def snapshot_fields(self, weights: int) -> list[Field]:
        """Return the fields of the snapshots, of which there are none unless workers act on them."""
        return Snapshots.fields(self.base.acting_fields(weights)) if self.acts_on_snapshots else []

    def snapshots(self, arena: Arena) -> Snapshots | None:
        """Return two buffers of what acting needs: the learner writes one while workers copy the other."""
        return Snapshots(arena, self.base.acting_names()) if self.acts_on_snapshots else None

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], int]]:
        """Return the weights and statistics to act with, and a function that updates them and returns their version.

        They are the published ones, in place, or a private copy into which the function copies the newest snapshot.
        """
        snapshots = self.snapshots(arena)
        if snapshots is None:
            return arena.__getitem__, lambda: int(arena["version"][0])
        private, parts = snapshots.private()
        return parts.__getitem__, partial(snapshots.copy, private)

    def local_gradient(self, arena: Arena) -> ShardedGradient | None:  # noqa: ARG002 - PPO overrides this
        """Return what computes shards of a gradient in this process; None if workers compute no gradients."""
        return None

    def on_node(self, held: GroupRange) -> Self:
        """Return the same plan for the groups of one node of a cluster."""
        shape = replace(self.base.shape, first_group=held.first_group, groups=held.groups)
        return replace(self, base=replace(self.base, shape=shape))

    @abstractmethod
    def transfer(self, weights: int) -> Transfer[J]:
        """Return the definition of what the driver and the nodes of a Ray cluster exchange.

        Raises:
            ConfigError: The algorithm needs all workers on one machine.
        """

    def stats(self) -> tuple[str, ...]:
        """Return the names of the `train/` statistics that only this algorithm reports."""
        return ()

    def identity(self) -> Mapping[str, object]:
        """Return the settings that a resumed run must have in common with the earlier one."""
        return {}

    @abstractmethod
    def __call__(self, arena: Arena, share: Share) -> J:
        """Build the job of one worker. Runs inside the worker."""

    @abstractmethod
    def driver(self, parts: DriverParts[J]) -> AnyDriver:
        """Build the collector and the learner. Runs in the driver, after the workers have started."""


def no_head(config: TrainConfig, spec: EnvSpec) -> EpsilonGreedy | None:  # noqa: ARG001 - see `Algorithm.value_head`
    """Return None: the network's outputs are parameters of the action distribution."""
    return None


@dataclass(frozen=True, slots=True)
class Algorithm(Generic[J]):
    """An algorithm, as its file in `train/algorithms/` defines it for the table of algorithms."""

    plan: Callable[[TrainConfig, WorkerRecipe, Layout], Plan[J]]
    """Make the plan of a config; raises ConfigError if env, settings or layout do not fit."""
    value_head: Callable[[TrainConfig, EnvSpec], EpsilonGreedy | None] = no_head
    """Make the head that draws actions from action values; None if the policy has an action distribution instead."""
