"""The opponent pool in shared memory: weight snapshots, sampling odds, and match results.

    driver  --snapshot, odds, epsilon-->  pool  --opponent of each episode-->  workers
    driver  <-----------wins, draws, losses, by env and opponent-----------   workers

Opponents are numbered: fixed players first, then the snapshot slots. The driver writes weights and odds between batches
(in async modes into the slot that was offered longest ago). Workers write results, each only those of its own envs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arrays, Field

LOSS, DRAW, WIN = 0, 1, 2
EMPTY = -1
"""`born` of a slot that holds no snapshot."""


class OpponentPool:
    """Views of the pool's arrays.

    Args:
        arena: Shared memory with `fields`.
    """

    def __init__(self, arena: Arrays) -> None:
        self.weights: NDArray[np.float32] = arena["pool/weights"]  # [slots, P]
        self.born: NDArray[np.int64] = arena["pool/born"]  # [slots]           number of the snapshot in each slot
        self.odds: NDArray[np.float64] = arena["pool/odds"]  # [K]             probability of each opponent
        self.next_epsilon: NDArray[np.float32] = arena["pool/next_epsilon"]  # [1]
        """Epsilon of snapshots in episodes that start from now on."""
        self.results: NDArray[np.int64] = arena["pool/results"]  # [B, K, 3]   losses, draws and wins of the learner
        self.opponent: NDArray[np.int64] = arena["pool/opponent"]  # [B]       opponent in the current episode
        self.epsilon: NDArray[np.float32] = arena["pool/epsilon"]  # [B]       epsilon of that opponent

    @staticmethod
    def fields(*, slots: int, fixed: int, weights: int, n_envs: int) -> list[Field]:
        """Return the arena fields of a pool.

        Args:
            slots: Number of snapshots.
            fixed: Number of players without weights.
            weights: Parameters per snapshot.
            n_envs: Number of envs (B).
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
        """Return the per-env state that must be saved with an episode, [B, ...] each."""
        return {"opponent": self.opponent, "opponent_epsilon": self.epsilon, "results": self.results}
