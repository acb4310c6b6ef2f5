"""DQN: workers fill a shared replay buffer, the driver learns action values from samples of it.

schedule batch: all groups collect -> the driver makes the updates that are due -> all groups collect ...
schedule async: workers collect and the driver learns at the same time, within the limits of `pacing.Limiter`
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.algos.dqn import STATS, DQNLearner, Epsilon
from paceline.collect.history import EpisodeHistory
from paceline.collect.transitions import CollectBudget, Lane, TransitionCollector
from paceline.config.dqn_settings import DQNConfig, buffer_room
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter, rows_for
from paceline.memory.rows import Row
from paceline.memory.sampling import PrioritisedSampler, Sampler, UniformSampler
from paceline.memory.shared import Arena, Field
from paceline.nets.array_net import array_net_for
from paceline.nets.flat import bind
from paceline.ops.distributions import legal_only
from paceline.ops.exploring import EpsilonGreedy
from paceline.ops.q_learning import q_values
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import GroupRange
from paceline.spec import EnvSpec
from paceline.train.layout import Layout
from paceline.train.league import in_league
from paceline.train.loop import Driver
from paceline.train.pacing import BatchPace, Limiter
from paceline.train.plan import Algorithm, AnyDriver, DriverParts
from paceline.train.recipes import restarts_for
from paceline.train.replay_access import ReplayAccess
from paceline.train.replay_batches import ReplayBatches
from paceline.train.replay_ingest import ReplayIngest
from paceline.train.replay_stream import REQUESTS_PER_WORKER, ReplayStream
from paceline.train.replay_transfer import ReplayPlan, ReplayTransfer
from paceline.train.worker_recipe import WorkerRecipe

MAX_MEMORY_SHARE = 0.9
"""Largest fraction of the free memory that a replay buffer may take."""


@dataclass(frozen=True, kw_only=True)
class DQNPlan(ReplayPlan):
    """The plan of DQN. See `Plan`."""

    settings: DQNConfig

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        return [
            *self.shape.fields(),
            *self.snapshot_fields(weights),
            *self.base.worker_fields(weights, workers),
            Field.of("epsilon", (self.shape.n_envs,), np.float32),
        ]

    @property
    def acts_on_snapshots(self) -> bool:
        """See `Plan.acts_on_snapshots`: in the async schedule, workers collect while the learner learns."""
        return self.settings.asynchronous

    @property
    def margin(self) -> int:
        """Number of rows after the heads that workers may be writing while the learner reads."""
        return self.requested_rows if self.settings.asynchronous else 0

    @property
    def requested_rows(self) -> int:
        """Largest number of rows per group that workers write for pending requests (not with budgets of episodes)."""
        return REQUESTS_PER_WORKER * self.settings.rollout_steps

    @property
    def max_batch_rows(self) -> int:
        """Largest number of rows in a batch, so that an episode without end cannot overwrite its own first rows."""
        return max(1, (self.shape.rows - self.settings.multi_step - self.shape.frame_stack) // 2)

    def replay(self, arena: Arena) -> Replay:
        """Return the replay buffer in the arena."""
        settings = self.settings
        return Replay(arena, self.shape, gamma=settings.gamma, multi_step=settings.multi_step, margin=self.margin)

    def transfer(self, weights: int) -> ReplayTransfer:
        """See `Plan.transfer`."""
        return ReplayTransfer(self, weights)

    def on_node(self, held: GroupRange) -> Self:
        """Return the plan for a node of a cluster, whose ring buffer holds only the rows that are being written."""
        rows = min(self.shape.rows, (self.max_batch_rows if self.settings.plays_episodes else self.requested_rows) + 2)
        ring = replace(self.shape, rows=rows, first_group=held.first_group, groups=held.groups)
        return replace(super().on_node(held), shape=ring)

    def stats(self) -> tuple[str, ...]:
        """See `Plan.stats`."""
        return STATS

    def identity(self) -> dict[str, object]:
        """See `Plan.identity`."""
        return self.settings.identity()

    def __call__(self, arena: Arena, share: Share) -> TransitionCollector:
        """Build the envs and the policy. Runs inside the worker."""
        arrays, renew = self.acting(arena)
        policy = self.base.policy.build(self.shape.spec)
        bind(policy, torch.from_numpy(arrays("weights")))
        # With budgets of episodes, each group has its own number of rows. Otherwise one forward pass serves all groups.
        central = self.base.central
        if central is not None:
            lanes = central.lanes(share)
        elif self.settings.plays_episodes:
            lanes = [replace(share, first_group=share.first_group + g, groups=1) for g in range(share.groups)]
        else:
            lanes = [share]
        return TransitionCollector([self._lane(arena, policy, lane) for lane in lanes], renew)

    def _lane(self, arena: Arena, policy: nn.Module, share: Share) -> Lane:
        spec, size = self.shape.spec, self.shape.group_size
        n = share.groups * size
        central = self.base.central
        return Lane(
            self.base.block(arena, share, finite_rows=True),
            ReplayWriter(arena, self.shape, share.first_group, share.groups),
            self.base.actor(policy, share.groups) if central is None else central.actor(arena, self.base.shape, share),
            EpsilonGreedy(spec.action.nvec[0]),
            (Row.blank(spec, n), Row.blank(spec, n)),
            seed=self.base.seed,
            first_group=share.first_group,
            groups=share.groups,
            group_size=size,
            epsilon=arena["epsilon"][self.shape.columns(share.first_group, share.groups)],
            heartbeat=arena["heartbeat"][share.worker],
            judge=partial(_judge, dueling=self.settings.dueling) if self.shape.priorities else None,
            gamma=self.settings.gamma,
        )

    def driver(self, parts: DriverParts[TransitionCollector]) -> AnyDriver:
        """See `Plan.driver`."""
        settings, arena, replay = self.settings, parts.arena, self.replay(parts.arena)
        spec, vector = self.shape.spec, parts.vector
        sampler: Sampler = (
            PrioritisedSampler(replay, settings.priority_alpha) if settings.prioritized else UniformSampler(replay)
        )
        target_vector, target = vector.clone(), copy.deepcopy(parts.policy)
        bind(target, target_vector)
        net = partial(array_net_for, spec=spec, both=settings.dueling, threads=settings.learner_threads)
        learner = DQNLearner(
            net(parts.policy, learns=True),
            net(target, learns=False),
            (vector, target_vector),
            parts.weights,
            replay,
            sampler,
            Epsilon(settings, arena["epsilon"], self.shape.groups),
            settings,
            seed=parts.config.run.seed,
            clock=parts.clock,
        )
        collector = (
            self._stream(parts, replay, sampler, learner)
            if settings.asynchronous
            else self._batches(parts, replay, sampler)
        )
        return Driver(collector, in_league(learner, parts.league), ReplayAccess(learner, collector))

    def _stream(
        self, parts: DriverParts[TransitionCollector], replay: Replay, sampler: Sampler, learner: DQNLearner
    ) -> ReplayStream:
        settings = self.settings
        return ReplayStream(
            restarts_for(parts.config, parts.runtime),
            ReplayIngest(replay, sampler, parts.tracker, save_replay=settings.save_replay),
            parts.arena["episode"],
            CollectBudget(rows=settings.rollout_steps),
            Limiter(settings, self.requested_rows * self.shape.n_envs),
            lambda: learner.samples,
            parts.weights.renew,
            parts.clock,
        )

    def _batches(self, parts: DriverParts[TransitionCollector], replay: Replay, sampler: Sampler) -> ReplayBatches:
        settings, every_env = self.settings, np.arange(self.shape.n_envs)
        history = EpisodeHistory(
            self.shape.spec, parts.arena["episode"], lambda: replay.shown(every_env), self.base.tags(parts.arena)
        )
        budget = CollectBudget(rows=settings.rollout_steps)
        if settings.plays_episodes:
            budget = CollectBudget(rows=self.max_batch_rows, episodes=settings.episodes_per_batch)
        return ReplayBatches(
            restarts_for(parts.config, parts.runtime),
            ReplayIngest(replay, sampler, parts.tracker, history, save_replay=settings.save_replay),
            history,
            budget,
            BatchPace(settings, self.shape.groups),
            parts.clock,
        )


def _plan(config: TrainConfig, base: WorkerRecipe, layout: Layout) -> DQNPlan:  # noqa: ARG001 - see `Algorithm.plan`
    settings, spec = config.training, base.shape.spec
    if not isinstance(settings, DQNConfig):
        raise TypeError(f"dqn: expected DQNConfig, got {type(settings).__name__}")
    if spec.action.kind != "categorical":
        raise ConfigError(
            f"dqn: needs Discrete actions, because it learns a value of each action ({spec.action_space}). Use ppo."
        )
    shape = ReplayShape(
        spec=spec,
        rows=1,
        groups=base.shape.groups,
        group_size=base.shape.group_size,
        frame_stack=config.env.frame_stack,
        priorities=settings.prioritized and settings.asynchronous,
    )
    room, in_bytes = buffer_room(settings.buffer_size)
    shape = replace(shape, rows=rows_for(room, shape, in_bytes=in_bytes))
    free = psutil.virtual_memory().available
    if shape.nbytes() > MAX_MEMORY_SHARE * free:
        raise ConfigError(
            f"buffer_size={settings.buffer_size}: {shape.items:,} transitions take {shape.nbytes() / 1e9:.2f} GB, and "
            f"{free / 1e9:.2f} GB of memory are free. Lower --buffer-size."
        )
    plan = DQNPlan(base=base, settings=settings, shape=shape)
    rows = shape.rows - plan.margin - shape.frame_stack - settings.multi_step
    if rows < settings.rollout_steps or rows * shape.n_envs < settings.learning_starts:
        raise ConfigError(
            f"buffer_size={settings.buffer_size}: {max(0, rows)} of its {shape.rows} rows of {shape.n_envs} envs can "
            f"be sampled at a time, less than n_steps={settings.rollout_steps} or learning_starts="
            f"{settings.learning_starts} require. Raise --buffer-size."
        )
    return plan


def _judge(
    params: NDArray[np.float32],
    value: NDArray[np.float32],
    action: NDArray[np.int64],
    mask: NDArray[np.bool_] | None,
    *,
    dueling: bool,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the Q-values of these actions and of the greedy actions, for initial priorities."""
    q = q_values(params, value, dueling=dueling)
    return q[np.arange(len(q)), action], legal_only(q, mask).max(1)


def _head(config: TrainConfig, spec: EnvSpec) -> EpsilonGreedy | None:
    settings = config.training
    if not isinstance(settings, DQNConfig) or not spec.action.nvec:
        return None
    return EpsilonGreedy(spec.action.nvec[0], settings.epsilon_end)


DQN = Algorithm(_plan, _head)
