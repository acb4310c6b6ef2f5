"""Base class for the plans of synchronous algorithms that learn from rollouts.

A new algorithm derives from `RolloutPlan` and implements `driver`, which combines `rollouts(parts)` with its own
learner; docs/how-to/add-an-algorithm.md has an example. In PPO, workers also compute gradients (algorithms/ppo.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.collect.history import EpisodeHistory
from paceline.envs.extras import TAG
from paceline.memory.shared import Arena, Field
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import Transfer
from paceline.train.plan import DriverParts, Plan
from paceline.train.recipes import restarts_for
from paceline.train.rollout_job import RolloutJob
from paceline.train.rollout_transfer import RolloutTransfer
from paceline.train.rollouts import Rollouts


@dataclass(frozen=True, kw_only=True)
class RolloutPlan(Plan[RolloutJob]):
    """A plan whose workers collect one rollout at a time with the newest weights, directly into shared memory."""

    @property
    def alternates(self) -> bool:
        """See `Plan.alternates`."""
        return True

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        return self.base.fields(weights, workers)

    def transfer(self, weights: int) -> Transfer[RolloutJob]:
        """See `Plan.transfer`."""
        return RolloutTransfer(self, weights)

    def __call__(self, arena: Arena, share: Share) -> RolloutJob:
        """Build the envs and the policy. Runs inside the worker."""
        collector = self.base.collector(arena, share, [Slots(arena, self.base.shape)], self.acting(arena)[0])
        return RolloutJob(collector, self.local_gradient(arena) if share.helps else None)

    def rollouts(
        self, parts: DriverParts[RolloutJob], *, learning: Slots | None = None, freeze: Callable[[], None] | None = None
    ) -> Rollouts:
        """Build the collector, which collects one rollout of all groups at a time.

        Args:
            parts: The objects that the driver has built.
            learning: In a pipeline, slots for a copy of the rollout, from which the learner reads.
            freeze: In a pipeline, copies the newest weights for the workers, which use the copy until the next call.
        """
        arena, spec = parts.arena, self.base.shape.spec
        slots = Slots(arena, self.base.shape)
        # Extras that are read once per episode are not read again in a replay, so the history keeps their values.
        per_episode = {
            TAG + name: extra[-1] for name, extra in slots.extras().items() if spec.extras[name].every == "episode"
        }
        return Rollouts(
            restarts_for(parts.config, parts.runtime),
            slots,
            parts.tracker,
            EpisodeHistory(spec, arena["episode"], slots.shown, {**self.base.tags(arena), **per_episode}),
            parts.clock,
            reward_norm=parts.reward_norm,
            learning=learning,
            freeze=freeze,
            trust_env_state=parts.config.run.trust_env_state,
        )
