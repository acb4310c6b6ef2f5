"""Build the envs, the policy and the collector of rollouts of one worker. All algorithms use this.

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
from paceline.collect.rollout import InterleavedCollectors, RolloutCollector
from paceline.envs.block import BlockSetup, EnvBlock
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.envs.shaping import ShapedEnvs, ShaperRecipe
from paceline.envs.step_cost import EnvThreads, threads_for, wait_s
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
from paceline.nets.normalise import ObsNormaliser, normalised_leaves
from paceline.nets.policy import PolicyRecipe
from paceline.ops.distributions import head_for
from paceline.runtime.protocol import Share
from paceline.spec import Leaf
from paceline.train.league import LeagueRecipe

ENV_THREADS = "env_threads"
"""Name of the field with the env threads of each worker, which the worker writes when it builds its envs."""
INTERLEAVED_PARTS = 4
"""Number of parts into which a worker divides its groups if its envs wait: one part acts while the others step."""


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
    """Seconds that an env waits per step, if the driver has measured it. `auto` threads: each worker measures."""
    league: LeagueRecipe | None = None
    """The opponents, if the env is a two-player game; None without self-play."""
    shaper: ShaperRecipe | None = None
    central: Central | None = None
    """How workers request actions from the driver; None without central inference."""
    on_nan: OnNan = "raise"
    """What to do about NaN and infinite values from envs."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Return the arena fields for collecting into one set of slots."""
        return [*self.shape.fields(), *self.worker_fields(weights, workers)]

    def worker_fields(self, weights: int, workers: int) -> list[Field]:
        """Return the arena fields that every algorithm needs, without slots and replay buffer."""
        # Opponents are indexed by the env's number in the whole run, even if a node has only some of the groups.
        envs = (self.shape.first_group + self.shape.groups) * self.shape.group_size
        return [
            *Weights.fields(weights),
            *self.norms(),
            *([] if self.league is None else self.league.fields(weights, envs)),
            *([] if self.central is None else self.central.fields(self.shape, workers)),
            Field.of("episode", (self.shape.n_envs,), np.int64),
            Field.of(ENV_THREADS, (max(1, workers),), np.int64),
            heartbeat_field(workers),
        ]

    def tags(self, arena: Arena) -> dict[str, NDArray[Any]]:
        """Return what restoring an episode needs besides its actions, [n_envs] each: in self-play, the opponent."""
        return {} if self.league is None else OpponentPool(arena).tags()

    def norms(self) -> list[Field]:
        """Return the fields of the statistics by which observations are normalised."""
        return [Field.of(f"norm/{leaf.name}", (2, *leaf.shape), np.float32) for leaf in self._normalised()]

    def acting_fields(self, weights: int) -> list[Field]:
        """Return the fields that acting reads, by the number of parameters."""
        return [Field.of("weights", (weights,), np.float32), *self.norms()]

    def acting_names(self) -> list[str]:
        """Return the names of the fields that acting reads: the weights and the observation statistics."""
        return ["weights", *(field.name for field in self.norms())]

    def obs_normaliser(self, arrays: ArraysByName, *, attach: bool = False) -> ObsNormaliser | None:
        """Return the normaliser with the statistics in `arrays`; None if observations are not normalised.

        Args:
            arrays: The statistics, by name.
            attach: Whether another process updates the statistics: True in workers, False in the driver.
        """
        if not self.normalize_obs:
            return None
        statistics = {leaf.name: arrays(f"norm/{leaf.name}") for leaf in self._normalised()}
        return ObsNormaliser(self.shape.spec, statistics, attach=attach)

    def actor(self, policy: nn.Module, groups: int, normaliser: ObsNormaliser | None = None) -> Actor:
        """Return the policy for collecting, which computes one forward pass for `groups` groups."""
        return actor_for(policy, self.shape.spec, groups, self.shape.group_size, normaliser)

    def _normalised(self) -> tuple[Leaf, ...]:
        return normalised_leaves(self.shape.spec) if self.normalize_obs else ()

    def collector(
        self, arena: Arena, share: Share, slots: Sequence[Slots], acting: ArraysByName
    ) -> InterleavedCollectors:
        """Build a worker's collector of rollouts. Runs inside the worker.

        Args:
            arena: Shared memory.
            share: The worker's groups.
            slots: The sets of slots that the driver may request the worker to fill.
            acting: The weights and observation statistics to act with, by name.
        """
        spec = self.shape.spec
        policy = self.policy.build(spec)
        bind(policy, torch.from_numpy(acting("weights")))
        normaliser = self.obs_normaliser(acting, attach=True)

        n = share.groups * self.shape.group_size
        threads, waits_s = self.threads(n)
        arena[ENV_THREADS][share.worker] = threads

        def collector(
            part: Share, actor: Actor, envs: EnvBlock, free_running: FreeRunning | None = None
        ) -> RolloutCollector:
            groups = {"first_group": part.first_group, "groups": part.groups, "seed": self.seed}
            return RolloutCollector(
                envs,
                slots,
                actor,
                self.actor(policy, 1, normaliser),
                head_for(spec.action),
                **groups,
                heartbeat=arena["heartbeat"][part.worker],
                finite=FiniteRollouts(slots, episode=envs.episode, **groups) if self.on_nan == "raise" else None,
                free_running=free_running,
            )

        lanes: list[tuple[Share, Actor]]
        if self.central is not None:
            lanes = [(lane, self.central.actor(arena, self.shape, lane)) for lane in self.central.lanes(share)]
        else:
            if threads == n > 1:
                actor = self.actor(policy, share.groups, normaliser)
                free_running = self._free_running(arena, share, actor, waits_s)
                if free_running is not None:
                    return InterleavedCollectors([collector(share, actor, free_running.envs, free_running)])
            parts = self._interleaved_parts(share, threads)
            lanes = [(part, self.actor(policy, part.groups, normaliser)) for part in parts]
        return InterleavedCollectors(
            [collector(lane, actor, self.block(arena, lane, threads)) for lane, actor in lanes]
        )

    @property
    def single(self) -> bool:
        """Whether the envs are single Gymnasium envs: neither two-player games nor native vector envs."""
        return self.league is None and not self.env.use_native(self.shape.group_size)

    @property
    def one_vector(self) -> bool:
        """Whether one native vector env steps all groups of a worker."""
        return self.league is None and self.env.use_native(self.shape.group_size) and self.env.one_vector

    def threads(self, n: int) -> tuple[int, float]:
        """Return the env threads of a worker with n envs, and the seconds that an env waits per step (0: unknown)."""
        if not self.single:
            return 1, 0.0
        if self.env_threads != "auto":
            return min(self.env_threads, n), self.env_wait_s
        waits = wait_s(self.env, seed=self.seed) if n > 1 else 0.0
        return threads_for(n, waits), waits

    def _interleaved_parts(self, share: Share, threads: int) -> list[Share]:
        """Divide a share so that one part acts while the envs of the other parts wait; one part if envs do not wait."""
        n = share.groups * self.shape.group_size
        # At least two envs per part: the worker's main thread would step a single env, and so could not act meanwhile.
        count = min(INTERLEAVED_PARTS, share.groups, n // 2) if threads == n > 1 and self.single else 1
        cuts = [share.first_group + share.groups * part // count for part in range(count + 1)]
        return [replace(share, first_group=a, groups=b - a) for a, b in itertools.pairwise(cuts)]

    def _free_running(self, arena: Arena, share: Share, actor: Actor, waits_s: float) -> FreeRunning | None:
        """Build free-running envs; None if they are not faster, or if shaping or NaN handling needs envs in step."""
        n, spec = share.groups * self.shape.group_size, self.shape.spec
        independent = self.single and self.shaper is None and self.on_nan == "raise"
        if not independent or not isinstance(actor, DeferredValueActor) or not pays(actor, spec, n, waits_s):
            return None
        envs = ThreadPerEnv(self.block_setup(arena, share))
        return FreeRunning(envs, actor, head_for(spec.action), self.shape, arena["heartbeat"][share.worker])

    def block_setup(self, arena: Arena, share: Share) -> BlockSetup:
        """Return how to make the envs of some groups."""
        return BlockSetup(
            recipe=self.env,
            spec=self.shape.spec,
            seed=self.seed,
            first_group=share.first_group,
            groups=share.groups,
            group_size=self.shape.group_size,
            episode=arena["episode"][self.shape.columns(share.first_group, share.groups)],
            line=arena["heartbeat"][share.worker],
            place=share.worker,
        )

    def block(self, arena: Arena, share: Share, threads: int | None = None, *, finite_rows: bool = False) -> EnvBlock:
        """Build the envs of some groups.

        Args:
            arena: Shared memory.
            share: The groups.
            threads: Number of env threads; None for that of the settings.
            finite_rows: Check every row for NaN when it is written. Otherwise the collector checks whole rollouts,
                which is cheaper but too late for a replay buffer.
        """
        if self.league is not None:
            return self.league.block(arena, share, self.shape, self.policy, seed=self.seed)
        setup = self.block_setup(arena, share)
        if threads is None:
            threads = arena[ENV_THREADS][share.worker] = self.threads(setup.n)[0]
        envs = make_block(setup, threads)
        if finite_rows or self.on_nan != "raise":
            envs = FiniteEnvs(envs, self.on_nan, first_env=setup.first_env, line=arena["heartbeat"][share.worker])
        if self.shaper is None:
            return envs
        return ShapedEnvs(envs, self.shaper.make(setup.n), setup.spec, setup.n)
