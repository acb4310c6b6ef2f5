"""Restores the envs of a lost worker to their state at the start of the current rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.collect.history import EpisodeHistory
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.protocol import Runtime, shares
from paceline.train.rollout_job import RolloutJob


class EpisodeRecord(Protocol):
    """Keeps data about the current episode of each env."""

    def forget(self, envs: list[int]) -> None:
        """Clear the data of these envs, which have started new episodes."""


class RolloutRecovery:
    """Recovery of envs for synchronous rollouts. See `restarts.EnvRecovery`.

    Args:
        history: The actions of the current episodes, and the state of each env at the start of the rollout.
        records: Other objects that keep data about the current episodes; entries may be None.
        shape: Shape of the rollouts.
        runtime: The workers.
    """

    def __init__(
        self,
        history: EpisodeHistory,
        records: Sequence[EpisodeRecord | None],
        shape: SlotShape,
        runtime: Runtime[RolloutJob],
    ) -> None:
        self._history, self._runtime = history, runtime
        self._records: list[EpisodeRecord] = [history, *(record for record in records if record is not None)]
        self._envs = [share.envs(shape.group_size) for share in shares(shape.groups, runtime.num_workers)]

    def respawn_restored(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_restored`: replays each episode up to the start of the rollout."""
        return self._runtime.respawn(worker, RolloutJob.restore, self._history.marked())

    def respawn_reset(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_reset`."""
        self._history.start_next_episodes(self._envs[worker])
        self._runtime.respawn(worker, RolloutJob.reset)
        return self._envs[worker]

    def forget_episodes(self, envs: list[int]) -> None:
        """See `EnvRecovery.forget_episodes`."""
        for record in self._records:
            record.forget(envs)
