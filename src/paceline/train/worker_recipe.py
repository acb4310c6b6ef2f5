"""What every worker is made of, whatever the algorithm: its envs, its policy and its collector of rollouts.

    driver:  WorkerRecipe --pickled--> worker:  block (envs) + actor (policy) + slots (memory) = collector

A recipe is picklable and small. An algorithm's plan (train/plan.py) holds one and adds what the algorithm needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.collect.finite import FiniteEnvs, FiniteRollouts, OnNan
from paceline.collect.free_running import FreeRunning, pays
from paceline.collect.inference_client import AnyCollector, InterleavedCollectors
from paceline.collect.rollout import RolloutCollector
from paceline.envs.block import EnvBlock
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import EnvThreads, make_block, threads_for, wait_s
from paceline.envs.shaping import ShapedEnvs, ShaperRecipe
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.inference.central import Central
from paceline.memory.opponent_pool import OpponentPool
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
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec, Leaf
from paceline.train.league import LeagueRecipe

TURNS = 4
"""Parts that a worker's groups are split into where envs wait: one part acts while the others step."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecipe:
    """How to build the envs, the policy and the collector of one worker's share of the groups."""

    env: EnvRecipe
    policy: PolicyRecipe
    shape: SlotShape
    seed: int
    normalize_obs: bool
    env_threads: EnvThreads = 1
    env_wait_s: float = 0.0
    """Seconds that a step of an env waits, if the driver has measured it; with `auto` threads each worker measures."""
    league: LeagueRecipe | None = None
    """Self-play: the opponents, where the env is a two-player game."""
    shaper: ShaperRecipe | None = None
    central: Central | None = None
    """Central inference: how workers ask, where the driver runs the policy."""
    on_nan: OnNan = "raise"
    """What happens to NaN and infinite values from envs."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """The arena fields that collecting one set of slots needs."""
        return [*self.shape.fields(), *Weights.fields(weights), *self.worker_fields(weights, workers)]

    def worker_fields(self, weights: int, workers: int) -> list[Field]:
        """The arena fields that every algorithm needs besides its slots or replay, and its weights."""
        # Opponents are kept by the env's number in the whole run, whichever of its groups are here.
        envs = (self.shape.first_group + self.shape.groups) * self.shape.group_size
        return [
            *self.norms(),
            *([] if self.league is None else self.league.fields(weights, envs)),
            *([] if self.central is None else self.central.fields(self.shape, workers)),
            Field.of("episode", (self.shape.n_envs,), np.int64),
            heartbeat_field(workers),
        ]

    def tags(self, arena: Arena) -> dict[str, NDArray[Any]]:
        """What belongs to each env's episode besides its actions, [n_envs] each: in self-play, the opponent."""
        return {} if self.league is None else OpponentPool(arena).tags()

    def norms(self) -> list[Field]:
        """The statistics that observations are normalised by."""
        return [Field.of(f"norm/{leaf.name}", (2, *leaf.shape), np.float32) for leaf in self._normalised()]

    def acting_names(self) -> list[str]:
        """Names of the fields that acting reads: the weights and the observation statistics."""
        return ["weights", *(field.name for field in self.norms())]

    def obs_normaliser(self, arrays: ArraysByName, *, attach: bool = False) -> ObsNormaliser | None:
        """The normaliser whose statistics are in `arrays`; None if observations are not normalised.

        Args:
            arrays: Where the statistics are.
            attach: Whether another process updates them (in a worker), instead of this one.
        """
        if not self.normalize_obs:
            return None
        own = {leaf.name: arrays(f"norm/{leaf.name}") for leaf in self._normalised()}
        return ObsNormaliser(self.shape.spec, own, attach=attach)

    def actor(self, policy: nn.Module, groups: int, normaliser: ObsNormaliser | None = None) -> Actor:
        """The policy for collecting: a forward over `groups` groups at once."""
        return actor_for(policy, self.shape.spec, groups, self.shape.group_size, normaliser)

    def _normalised(self) -> tuple[Leaf, ...]:
        return normalised_leaves(self.shape.spec) if self.normalize_obs else ()

    def collector(self, arena: Arena, share: Share, slots: Sequence[Slots], acting: ArraysByName) -> AnyCollector:
        """Build a worker's collector of rollouts. Runs inside the worker.

        Args:
            arena: Shared memory.
            share: The worker's groups.
            slots: The sets of slots that it may be told to fill.
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

    def block(
        self, arena: Arena, share: Share, threads: EnvThreads | None = None, *, finite_rows: bool = False
    ) -> EnvBlock:
        """The envs of some groups.

        Args:
            arena: Shared memory.
            share: The groups.
            threads: Env threads, if that is decided already.
            finite_rows: Check every row for NaN at once. Without it the collector checks whole rollouts, which is
                cheaper but too late for a replay.
        """
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
        if finite_rows or self.on_nan != "raise":
            envs = FiniteEnvs(envs, self.on_nan, first_env=share.first_group * size, line=line)
        if self.shaper is None:
            return envs
        n = share.groups * size
        return ShapedEnvs(envs, self.shaper.make(n), spec, n)
