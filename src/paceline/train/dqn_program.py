"""What a worker of DQN is handed, and the driver's own parts around it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.algos.dqn import DQNLearner, Epsilon
from paceline.collect.history import EpisodeHistory
from paceline.collect.inference_client import LaneShare
from paceline.collect.transitions import CollectBudget, Lane, TransitionCollector
from paceline.config.dqn_settings import DQNConfig, buffer_room
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter, rows_for
from paceline.memory.rows import Row
from paceline.memory.sampling import PrioritisedSampler, Sampler, UniformSampler
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.weights import Snapshots, Weights
from paceline.memory.worker_status import heartbeat_field
from paceline.nets.actor import Actor
from paceline.nets.array_net import array_net_for
from paceline.nets.flat import bind
from paceline.ops.distributions import legal_only
from paceline.ops.exploring import EpsilonGreedy
from paceline.ops.q_learning import q_values
from paceline.runtime.protocol import Runtime, Share, shares
from paceline.train.dqn_job import DQNJob
from paceline.train.pacing import BatchPace, Limiter
from paceline.train.program import WorkerProgram
from paceline.train.recipes import restarts_for
from paceline.train.replay_batches import ReplayBatches
from paceline.train.replay_ingest import ReplayIngest
from paceline.train.replay_stream import ORDERS, ReplayStream

MOST_MEMORY = 0.9
"""Share of the free memory that a replay may be large enough to take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DQNProgram:
    """Builds the job of one worker's share of the groups."""

    base: WorkerProgram
    training: DQNConfig
    shape: ReplayShape

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Everything that workers and driver share."""
        newest = Weights.fields(weights)
        return [
            *self.shape.fields(),
            *newest,
            *(Snapshots.fields(newest[:1]) if self.streams else ()),
            *self.base.league_fields(weights),
            *self.base.central_fields(workers),
            Field.of("epsilon", (self.shape.n_envs,), np.float32),
            Field.of("episode", (self.shape.n_envs,), np.int64),
            heartbeat_field(workers),
        ]

    @property
    def streams(self) -> bool:
        """Whether workers play while the learner learns."""
        return self.training.schedule == "async"

    def weights(self, arena: Arena) -> Weights:
        """The newest weights."""
        return Weights(arena, Snapshots(arena, ["weights"]) if self.streams else None)

    @property
    def margin(self) -> int:
        """Rows beyond the heads that may be being written while the learner reads."""
        return self.in_orders if self.streams else 0

    @property
    def in_orders(self) -> int:
        """Rows that are being written at most, where episodes are not counted."""
        return ORDERS * self.training.order_steps

    @property
    def longest(self) -> int:
        """The most rows of a batch: an episode that never ends must not fill the ring over what it began with."""
        return max(1, (self.shape.rows - self.training.multi_step - self.shape.frame_stack) // 2)

    def replay(self, arena: Arena) -> Replay:
        """What was played."""
        training = self.training
        return Replay(arena, self.shape, gamma=training.gamma, multi_step=training.multi_step, margin=self.margin)

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """The weights to act with, by name, in place or as a copy; and what takes over the newest."""
        if not self.streams:
            return arena.__getitem__, _nothing
        snapshots = Snapshots(arena, ["weights"])
        private, parts = snapshots.private()
        return parts.__getitem__, partial(snapshots.copy, private)

    def __call__(self, arena: Arena, share: Share) -> DQNJob:
        """Build the envs and the policy. Runs inside the worker."""
        arrays, renew = self.acting(arena)
        policy = self.base.policy.build(self.shape.spec)
        bind(policy, torch.from_numpy(arrays("weights")))
        # Groups that play episodes need a number of rows that is their own; otherwise one forward serves them all.
        central = self.base.central
        if central is not None:
            lanes = [replace(share, first_group=one.first_group, groups=one.groups) for one in central.lanes(share)]
        elif self.training.plays_episodes:
            lanes = [replace(share, first_group=share.first_group + g, groups=1) for g in range(share.groups)]
        else:
            lanes = [share]
        collector = TransitionCollector([self._lane(arena, policy, lane) for lane in lanes])
        return DQNJob(collector, slice(share.first_group, share.first_group + share.groups), renew)

    def _lane(self, arena: Arena, policy: nn.Module, share: Share) -> Lane:
        spec, size = self.shape.spec, self.shape.group_size
        n = share.groups * size
        central = self.base.central
        actor: Actor = self.base.actor(policy, share.groups)
        if central is not None:
            lane = LaneShare(share.worker, share.first_group, share.groups, share.first_group // central.groups)
            actor = central.actor(arena, self.base.shape, lane)
        return Lane(
            self.base.block(arena, share),
            ReplayWriter(arena, self.shape, share.first_group, share.groups),
            actor,
            EpsilonGreedy(spec.action.nvec[0]),
            (Row.blank(spec, n), Row.blank(spec, n)),
            seed=self.base.seed,
            first_group=share.first_group,
            groups=share.groups,
            group_size=size,
            epsilon=arena["epsilon"][self.shape.columns(share.first_group, share.groups)],
            heartbeat=arena["heartbeat"][share.worker],
            judge=partial(_judge, dueling=self.training.dueling) if self.shape.priorities else None,
            gamma=self.training.gamma,
        )


def dqn_program(config: TrainConfig, base: WorkerProgram) -> DQNProgram:
    """The program of a config.

    Raises:
        ConfigError: The env's actions, or the size of the replay, do not fit.
    """
    training, spec = config.training, base.shape.spec
    if not isinstance(training, DQNConfig):
        raise TypeError(f"settings of DQN are needed, not {type(training).__name__}")
    if spec.action.kind != "categorical":
        raise ConfigError(
            f"dqn: learns the value of each action, and so needs Discrete actions ({spec.action_space}). Use ppo."
        )
    shape = ReplayShape(
        spec=spec,
        rows=1,
        groups=base.shape.groups,
        group_size=base.shape.group_size,
        frame_stack=config.env.frame_stack,
        priorities=training.prioritized and training.schedule == "async",
    )
    room, in_bytes = buffer_room(training.buffer_size)
    shape = replace(shape, rows=rows_for(room, shape, in_bytes=in_bytes))
    free = psutil.virtual_memory().available
    if shape.nbytes() > MOST_MEMORY * free:
        raise ConfigError(
            f"buffer_size={training.buffer_size}: {shape.items:,} transitions take {shape.nbytes() / 1e9:.2f} GB, and "
            f"{free / 1e9:.2f} GB of memory are free. Lower --buffer-size."
        )
    program = DQNProgram(base=base, training=training, shape=shape)
    rows = shape.rows - program.margin - shape.frame_stack - training.multi_step
    if rows < training.order_steps or rows * shape.n_envs < training.learning_starts:
        raise ConfigError(
            f"buffer_size={training.buffer_size}: of its {shape.rows} rows of {shape.n_envs} envs, {max(0, rows)} can "
            f"be learned from at a time, which is less than n_steps={training.order_steps} or learning_starts="
            f"{training.learning_starts} ask for. Raise --buffer-size."
        )
    return program


class DQNParts(NamedTuple):
    """The two ends of the replay, in the driver."""

    learner: DQNLearner
    collector: ReplayBatches | ReplayStream


def dqn_parts(
    config: TrainConfig,
    program: DQNProgram,
    arena: Arena,
    runtime: Runtime[DQNJob],
    policy: nn.Module,
    vector: Tensor,
    tracker: EpisodeTracker,
    clock: Clock,
) -> DQNParts:
    """Build the learner and the collector.

    Args:
        config: Everything.
        program: What workers run.
        arena: Shared memory.
        runtime: The workers.
        policy: The network, its parameters views of `vector`.
        vector: The parameters being learned.
        tracker: Counts steps and episodes.
        clock: Books the time.
    """
    training, spec, replay = program.training, program.shape.spec, program.replay(arena)
    sampler: Sampler = (
        PrioritisedSampler(replay, training.priority_alpha) if training.prioritized else UniformSampler(replay)
    )
    weights, target_vector = program.weights(arena), vector.clone()
    target = copy.deepcopy(policy)
    bind(target, target_vector)
    net = partial(array_net_for, spec=spec, both=training.dueling, threads=training.learner_threads)
    learner = DQNLearner(
        net(policy, learns=True),
        net(target, learns=False),
        (vector, target_vector),
        weights,
        replay,
        sampler,
        Epsilon(training, arena["epsilon"], program.shape.groups),
        training,
        seed=config.run.seed,
        clock=clock,
    )
    if program.streams:
        stint = CollectBudget(rows=training.order_steps)
        limiter = Limiter(training, ORDERS * stint.rows * program.shape.n_envs)
        stream = ReplayStream(
            runtime,
            ReplayIngest(replay, sampler, tracker, keep=training.save_replay),
            shares(program.shape.groups, runtime.num_workers),
            arena["episode"],
            stint,
            limiter,
            lambda: learner.samples,
            weights.renew,
            clock,
            restarts_for(config, runtime),
        )
        return DQNParts(learner, stream)
    everyone = np.arange(program.shape.n_envs)
    history = EpisodeHistory(spec, arena["episode"], lambda: replay.shown(everyone), program.base.tags(arena))
    stint = CollectBudget(rows=program.longest, episodes=training.episodes_per_batch)
    if not training.plays_episodes:
        stint = CollectBudget(rows=training.order_steps)
    batches = ReplayBatches(
        runtime,
        ReplayIngest(replay, sampler, tracker, history, keep=training.save_replay),
        history,
        stint,
        BatchPace(training, program.shape.groups),
        clock,
        restarts_for(config, runtime),
    )
    return DQNParts(learner, batches)


def _judge(
    params: NDArray[np.float32],
    value: NDArray[np.float32],
    action: NDArray[np.int64],
    mask: NDArray[np.bool_] | None,
    *,
    dueling: bool,
) -> tuple[Any, Any]:
    """The values of these actions, and of the best ones."""
    q = q_values(params, value, dueling=dueling)
    return q[np.arange(len(q)), action], legal_only(q, mask).max(1)


def _nothing() -> None:
    pass
