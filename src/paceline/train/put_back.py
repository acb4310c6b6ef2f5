"""Where the envs of a run are when its workers begin together: for those of a worker that is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from paceline.collect.history import EpisodeHistory
from paceline.envs.block import History
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.protocol import Runtime, shares


class Forgetful(Protocol):
    """Keeps something of each env's episode under way."""

    def forget(self, envs: list[int]) -> None:
        """These have begun new ones."""


class RolloutEnvs:
    """The envs of rollouts in step, as `restarts.Envs` has it.

    Args:
        history: The actions of episodes under way, and where they were when the rollout began.
        records: Whatever else keeps something of each episode; None for what is not there.
        shape: Of the rollouts.
        runtime: The workers.
    """

    def __init__(
        self, history: EpisodeHistory, records: Sequence[Forgetful | None], shape: SlotShape, runtime: Runtime
    ) -> None:
        self._history = history
        self._records: list[Forgetful] = [history, *(one for one in records if one is not None)]
        self._envs = [share.envs(shape.group_size) for share in shares(shape.groups, runtime.num_workers)]

    def where(self) -> tuple[list[History]]:
        """Where all envs were when the workers were started."""
        return (self._history.marked(),)

    def begin_anew(self, worker: int) -> tuple[list[int], tuple[Any, ...]]:
        """Have a worker's envs begin new episodes."""
        self._history.begin_anew(self._envs[worker])
        return self._envs[worker], ()

    def strayed(self, envs: list[int]) -> None:
        """These could not be put back where they were, and began a new episode."""
        for record in self._records:
            record.forget(envs)
