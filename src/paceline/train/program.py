"""What a worker is handed: a picklable recipe that builds its collector inside the worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.algos.ppo_gradient import PPOGradient, ShardedGradient
from paceline.collect.finite import FiniteEnvs, FiniteRollouts, OnNan
from paceline.collect.free_running import FreeRunning, pays
from paceline.collect.inference_client import AnyCollector, InferenceChannel, InterleavedCollectors, connect
from paceline.collect.rollout import RolloutCollector
from paceline.collect.times import CollectTimes
from paceline.config.dqn_settings import DQNConfig
from paceline.config.settings import AnySettings, Settings
from paceline.envs.block import EnvBlock, History
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import EnvThreads, make_block, threads_for, wait_s
from paceline.envs.shaping import ShapedEnvs, ShaperRecipe
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.inference.central import Central
from paceline.memory.opponent_pool import OpponentPool
from paceline.memory.shards import Shards, ShardShape
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.weights import Weights
from paceline.memory.worker_status import heartbeat_field
from paceline.nets.actor import Actor, DeferredValueActor, actor_for
from paceline.nets.flat import bind
from paceline.nets.mlp import Activation
from paceline.nets.normalise import ObsNormaliser, normalised_leaves
from paceline.nets.policy import build_policy
from paceline.ops.distributions import head_for
from paceline.ops.surrogate import TERMS
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec, Leaf
from paceline.train.league import LeagueRecipe

LEARNING, ACTING = "learning/", "acting/"
"""In a pipeline: the batch that is learned from, and the weights that are acted with, beside the originals."""

TURNS = 4
"""Parts of a worker's envs that take turns in acting, where they wait while they step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRecipe:
    """How to build the network, the same in every process."""

    policy: str | type[nn.Module]
    hidden_sizes: tuple[int, ...]
    activation: Activation
    seed: int

    def build(self, spec: EnvSpec) -> nn.Module:
        """A fresh network, initialised by the seed alone."""
        return build_policy(
            self.policy, spec, hidden_sizes=self.hidden_sizes, activation=self.activation, seed=self.seed
        )


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What a worker does: it collects, and computes gradients while its envs rest."""

    collector: AnyCollector
    sharded: ShardedGradient | None
    """None for a worker that is never asked for gradients."""

    def connect(self, asker: InferenceChannel) -> None:
        """Whom to ask, where the policy is elsewhere."""
        connect(self.collector, asker)

    def reset(self) -> None:
        """Begin every env's first episode."""
        self.collector.reset()

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Put every env where it was; returns those that began a new episode."""
        return self.collector.restore(histories)

    def dump(self) -> list[bytes]:
        """The envs as they are, pickled."""
        return self.collector.dump()

    def collect(self, step: int) -> CollectTimes:
        """The role COLLECT: fill the slots."""
        times = self.collector.collect(step)
        return times if self.sharded is None else times._replace(learn_s=self.sharded.busy_s())

    def work(self, shard: int) -> None:
        """The role GRAD: one shard of a minibatch, by whichever worker is free."""
        if self.sharded is None:
            raise RuntimeError("work: this worker was made without gradients")
        self.sharded(shard)

    def close(self) -> None:
        """Close the envs."""
        self.collector.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerProgram:
    """Builds the job of one worker's share of the groups."""

    env: EnvRecipe
    policy: PolicyRecipe
    shape: SlotShape
    seed: int
    normalize_obs: bool
    training: AnySettings
    shards: int
    pipeline: bool = False
    compiled_rows: int | None = None
    """Rows of the largest shard, where gradients are compiled."""
    env_threads: EnvThreads = 1
    env_wait_s: float = 0.0
    """How long a step of an env waits, where the driver knows; with `auto` threads each worker tries an env."""
    league: LeagueRecipe | None = None
    """Where the env is a game of two: who else plays."""
    shaper: ShaperRecipe | None = None
    central: Central | None = None
    """Where the driver runs the policy."""
    on_nan: OnNan = "raise"
    """What is done about numbers of envs that are not finite."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Everything that workers and driver share."""
        steps = self.shape.n_steps * self.shape.n_envs
        pipelined = (*self.shape.fields(LEARNING), *self._acting(weights)) if self.pipeline else ()
        return [
            *self.shape.fields(),
            *pipelined,
            *ShardShape(steps, self.shards, weights, len(TERMS)).fields(),
            *Weights.fields(weights),
            *self.norms(),
            *self.league_fields(weights),
            *self.central_fields(workers),
            Field.of("episode", (self.shape.n_envs,), np.int64),
            heartbeat_field(workers),
        ]

    def central_fields(self, workers: int) -> list[Field]:
        """InferenceRequests and answers, where the driver runs the policy."""
        return [] if self.central is None else self.central.fields(self.shape, workers)

    def league_fields(self, weights: int) -> list[Field]:
        """The opponent pool, where there is one."""
        # By the env's number in the whole run, whichever of them are held here.
        envs = (self.shape.first_group + self.shape.groups) * self.shape.group_size
        return [] if self.league is None else self.league.fields(weights, envs)

    def tags(self, arena: Arena) -> dict[str, NDArray[Any]]:
        """What belongs to each env's episode besides its actions, [n_envs] each."""
        return {} if self.league is None else OpponentPool(arena).tags()

    def norms(self) -> list[Field]:
        """The statistics that observations are normalised by."""
        return [Field.of(f"norm/{leaf.name}", (2, *leaf.shape), np.float32) for leaf in self._normalised()]

    def _acting(self, weights: int) -> list[Field]:
        """What workers act with while the learner changes the original."""
        originals = (Field.of("weights", (weights,), np.float32), *self.norms())
        return [replace(field, name=ACTING + field.name) for field in originals]

    def freeze(self, arena: Arena) -> None:
        """Have workers act with what is newest now, until the next call."""
        for name in ("weights", *(field.name for field in self.norms())):
            arena[ACTING + name][...] = arena[name]

    def slots(self, arena: Arena) -> Slots:
        """Where the learner finds a batch."""
        return Slots(arena, self.shape, LEARNING if self.pipeline else "")

    def obs_normaliser(self, arrays: ArraysByName, *, attach: bool = False) -> ObsNormaliser | None:
        """The normaliser whose statistics are among `arrays`, if there is one; a worker attaches to it."""
        if not self.normalize_obs:
            return None
        own = {leaf.name: arrays(f"norm/{leaf.name}") for leaf in self._normalised()}
        return ObsNormaliser(self.shape.spec, own, attach=attach)

    def actor(self, policy: nn.Module, groups: int, normaliser: ObsNormaliser | None = None) -> Actor:
        """The policy as acting sees it, over `groups` groups at once."""
        return actor_for(policy, self.shape.spec, groups, self.shape.group_size, normaliser)

    def _normalised(self) -> tuple[Leaf, ...]:
        return normalised_leaves(self.shape.spec) if self.normalize_obs else ()

    def __call__(self, arena: Arena, share: Share) -> WorkerJob:
        """Build the envs and the policies. Runs inside the worker."""
        collector = self.collector(arena, share, [Slots(arena, self.shape)], self.acting(arena)[0])
        return WorkerJob(collector, self.gradient(arena) if share.helps else None)

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """The weights and statistics to act with, by name; and what takes over the newest: they are in place."""
        return (partial(_named, arena, ACTING) if self.pipeline else arena.__getitem__), _nothing

    @property
    def rollout_settings(self) -> Settings:
        """The settings of an algorithm that learns from rollouts."""
        if isinstance(self.training, DQNConfig):
            raise TypeError("dqn learns from a replay, not from rollouts")
        return self.training

    @property
    def base(self) -> WorkerProgram:
        """Itself: async programs are built around one of these."""
        return self

    def compiled(self, rows: int | None) -> WorkerProgram:
        """The same, with gradients compiled for so many rows."""
        return replace(self, compiled_rows=rows)

    def weights(self, arena: Arena) -> Weights:
        """The newest weights."""
        return Weights(arena)

    def gradient(self, arena: Arena, slots: Slots | None = None) -> ShardedGradient:
        """A part of learning; from `slots`, where they are not its own."""
        gradient = self.gradient_of(arena.__getitem__, self.rollout_settings)
        return ShardedGradient(gradient, slots or self.slots(arena), Shards(arena))

    def gradient_of(self, learning: ArraysByName, training: Settings) -> PPOGradient:
        """The gradient of a policy of its own, with the weights and observation statistics that are in `learning`."""
        spec = self.shape.spec
        policy = self.policy.build(spec)
        bind(policy, torch.from_numpy(learning("weights")), frozen=False)
        normaliser = self.obs_normaliser(learning, attach=True)
        return PPOGradient(policy, head_for(spec.action), spec, training, normaliser, compiled_rows=self.compiled_rows)

    def collector(self, arena: Arena, share: Share, slots: Sequence[Slots], acting: ArraysByName) -> AnyCollector:
        """The worker's part of collecting.

        Args:
            arena: Shared memory.
            share: The worker's.
            slots: Sets to collect into.
            acting: The weights and observation statistics to act with, by name.
        """
        spec = self.shape.spec
        policy = self.policy.build(spec)
        bind(policy, torch.from_numpy(acting("weights")))
        normaliser = self.obs_normaliser(acting, attach=True)

        n = share.groups * self.shape.group_size
        threads, waits_s = self.threads(n)

        def collector(
            own: Share, actor: Actor, envs: EnvBlock, free_running: FreeRunning | None = None
        ) -> RolloutCollector:
            look = {"first_group": own.first_group, "groups": own.groups, "seed": self.seed}
            return RolloutCollector(
                envs,
                slots,
                actor,
                self.actor(policy, 1, normaliser),
                head_for(spec.action),
                seed=self.seed,
                first_group=own.first_group,
                groups=own.groups,
                heartbeat=arena["heartbeat"][own.worker],
                finite=FiniteRollouts(slots, episode=envs.episode, **look) if self.on_nan == "raise" else None,
                free_running=free_running,
            )

        if self.central is not None:
            lanes = self.central.lanes(share)
            actors = [self.central.actor(arena, self.shape, lane) for lane in lanes]
            owned = [replace(share, first_group=lane.first_group, groups=lane.groups) for lane in lanes]
            asking = zip(owned, actors, strict=True)
            return InterleavedCollectors(
                [collector(*each, self.block(arena, each[0], threads)) for each in asking], actors
            )
        actor = self.actor(policy, share.groups, normaliser)
        free_running = self._free_running(arena, share, actor, waits_s) if threads == n > 1 else None
        if free_running is not None:
            return collector(share, actor, free_running.envs, free_running)
        turns = self._turns(share, threads)
        if len(turns) == 1:
            return collector(share, actor, self.block(arena, share, threads))
        return InterleavedCollectors(
            [collector(t, self.actor(policy, t.groups, normaliser), self.block(arena, t, threads)) for t in turns]
        )

    @property
    def single(self) -> bool:
        """Whether the envs are single ones, neither games nor native vector envs."""
        return self.league is None and not self.env.use_native(self.shape.group_size)

    def threads(self, n: int) -> tuple[int, float]:
        """Env threads of a worker that has n envs, and how long a step of theirs waits; 0 where that is not known."""
        if self.env_threads != "auto":
            return min(self.env_threads, n), self.env_wait_s
        waits = wait_s(self.env, self.shape.spec, seed=self.seed) if n > 1 and self.single else 0.0
        return threads_for(n, waits), waits

    def _turns(self, share: Share, threads: int) -> list[Share]:
        """Parts of a share that take turns: where all envs wait at once, some act meanwhile."""
        n = share.groups * self.shape.group_size
        # Parts of two or more: a single env is stepped by the worker itself, which the others would wait for.
        count = min(TURNS, share.groups, n // 2) if threads == n > 1 and self.single else 1
        cuts = [share.first_group + share.groups * part // count for part in range(count + 1)]
        return [replace(share, first_group=a, groups=b - a) for a, b in itertools.pairwise(cuts)]

    def _free_running(self, arena: Arena, share: Share, actor: Actor, waits_s: float) -> FreeRunning | None:
        """A worker's envs, each at its own pace; None where that does not pay, or something looks at all of them."""
        n, spec = share.groups * self.shape.group_size, self.shape.spec
        alone = self.single and self.shaper is None and self.on_nan == "raise"
        if not alone or not isinstance(actor, DeferredValueActor) or not pays(actor, spec, n, waits_s):
            return None
        envs = self.thread_per_env(arena, share)
        return FreeRunning(envs, actor, head_for(spec.action), self.shape, arena["heartbeat"][share.worker])

    def thread_per_env(self, arena: Arena, share: Share) -> ThreadPerEnv:
        """The envs of some groups, single ones, with a thread each."""
        return ThreadPerEnv(
            self.env,
            self.shape.spec,
            seed=self.seed,
            first_env=share.first_group * self.shape.group_size,
            n=share.groups * self.shape.group_size,
            episode=arena["episode"][self.shape.columns(share.first_group, share.groups)],
            line=arena["heartbeat"][share.worker],
            place=share.worker,
        )

    def block(self, arena: Arena, share: Share, threads: EnvThreads | None = None) -> EnvBlock:
        """The envs of some groups; with so many threads, where that is known."""
        if self.league is not None:
            return self.league.block(arena, share, self)
        size, spec, line = self.shape.group_size, self.shape.spec, arena["heartbeat"][share.worker]
        envs = make_block(
            self.env,
            spec,
            seed=self.seed,
            first_group=share.first_group,
            groups=share.groups,
            group_size=self.shape.group_size,
            episode=arena["episode"][self.shape.columns(share.first_group, share.groups)],
            threads=self.env_threads if threads is None else threads,
            line=line,
            place=share.worker,
        )
        # Rollouts are looked at as a whole; rows of a replay have to be as they are written.
        if self.on_nan != "raise" or isinstance(self.training, DQNConfig):
            envs = FiniteEnvs(envs, self.on_nan, first_env=share.first_group * size, line=line)
        if self.shaper is None:
            return envs
        n = share.groups * size
        return ShapedEnvs(envs, self.shaper.make(n), spec, n)


def _nothing() -> None:
    pass


def _named(arena: Arena, prefix: str, name: str) -> NDArray[Any]:
    return arena[prefix + name]
