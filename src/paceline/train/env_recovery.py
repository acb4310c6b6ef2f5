"""Where the envs of a run are when its workers begin together: for those of a worker that is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.collect.history import EpisodeHistory
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.protocol import Runtime, shares
from paceline.train.rollout_job import RolloutJob


class Forgetful(Protocol):
    """Keeps something of each env's episode under way."""

    def forget(self, envs: list[int]) -> None:
        """These have begun new ones."""


class RolloutRecovery:
    """The envs of rollouts in step, as `restarts.EnvRecovery` has it.

    Args:
        history: The actions of episodes under way, and where they were when the rollout began.
        records: Whatever else keeps something of each episode; None for what is not there.
        shape: Of the rollouts.
        runtime: The workers.
    """

    def __init__(
        self,
        history: EpisodeHistory,
        records: Sequence[Forgetful | None],
        shape: SlotShape,
        runtime: Runtime[RolloutJob],
    ) -> None:
        self._history, self._runtime = history, runtime
        self._records: list[Forgetful] = [history, *(one for one in records if one is not None)]
        self._envs = [share.envs(shape.group_size) for share in shares(shape.groups, runtime.num_workers)]

    def respawn_restored(self, worker: int) -> list[int]:
        """Respawn a worker with its envs where they were when the workers were started; see `restarts.EnvRecovery`."""
        return self._runtime.respawn(worker, RolloutJob.restore, self._history.marked())

    def respawn_reset(self, worker: int) -> list[int]:
        """Respawn a worker with its envs at new episodes; see `restarts.EnvRecovery`."""
        self._history.start_next_episodes(self._envs[worker])
        self._runtime.respawn(worker, RolloutJob.reset)
        return self._envs[worker]

    def forget_episodes(self, envs: list[int]) -> None:
        """These could not be put back where they were, and began a new episode."""
        for record in self._records:
            record.forget(envs)
