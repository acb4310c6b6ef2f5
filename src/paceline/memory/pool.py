"""The opponent pool in shared memory: snapshots of the weights, who plays whom, and how it ended.

    driver  --snapshot, odds, epsilon-->  pool  --opponent of each episode-->  workers
    driver  <-----------wins, draws, losses, by env and opponent-----------   workers

Opponents are numbered: fixed players first, then the slots of snapshots. The driver writes weights and odds between
batches (in async modes: into the slot that was offered longest ago), workers write results, each of its own envs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arrays, Field

LOSS, DRAW, WIN = 0, 1, 2
EMPTY = -1
"""`born` of a slot without a snapshot."""


class OpponentPool:
    """The arrays.

    Args:
        arena: Shared memory with `fields`.
    """

    def __init__(self, arena: Arrays) -> None:
        self.weights: NDArray[np.float32] = arena["pool/weights"]  # [slots, P]
        self.born: NDArray[np.int64] = arena["pool/born"]  # [slots]           number of the snapshot in each slot
        self.odds: NDArray[np.float64] = arena["pool/odds"]  # [K]             how often each is to be met
        self.next_epsilon: NDArray[np.float32] = arena["pool/next_epsilon"]  # [1]
        """How much snapshots explore in episodes that begin now."""
        self.results: NDArray[np.int64] = arena["pool/results"]  # [B, K, 3]   losses, draws and wins of the learner
        self.opponent: NDArray[np.int64] = arena["pool/opponent"]  # [B]       of the episode under way
        self.epsilon: NDArray[np.float32] = arena["pool/epsilon"]  # [B]       of that opponent

    @staticmethod
    def fields(*, slots: int, fixed: int, weights: int, n_envs: int) -> list[Field]:
        """What an arena must hold.

        Args:
            slots: Snapshots.
            fixed: Players that need no weights.
            weights: Parameters of one.
            n_envs: Envs.
        """
        return [
            Field.of("pool/weights", (slots, weights), np.float32),
            Field.of("pool/born", (slots,), np.int64),
            Field.of("pool/odds", (fixed + slots,), np.float64),
            Field.of("pool/next_epsilon", (1,), np.float32),
            Field.of("pool/results", (n_envs, fixed + slots, 3), np.int64),
            Field.of("pool/opponent", (n_envs,), np.int64),
            Field.of("pool/epsilon", (n_envs,), np.float32),
        ]

    def tags(self) -> dict[str, NDArray[Any]]:
        """What belongs to the episode of each env, and to those before it, [B, ...] each."""
        return {"opponent": self.opponent, "opponent_epsilon": self.epsilon, "results": self.results}
