"""One time step of a rollout as a worker writes it: numpy views of its own columns in shared memory.

Rows are created once, before the first step, so that the step loop neither indexes nor allocates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.spec import EnvSpec


@dataclass(frozen=True, slots=True)
class Row:
    """Observations, actions and results of n envs in one step. Row T has only `obs`, `mask`, `value` and `extras`."""

    obs: dict[str, NDArray[Any]]  # [n, *leaf]
    mask: NDArray[np.bool_] | None  # [n, M]
    action: NDArray[Any]  # [n, *act]
    reward: NDArray[np.float32]  # [n]
    terminated: NDArray[np.bool_]  # [n]
    truncated: NDArray[np.bool_]  # [n]
    valid: NDArray[np.bool_]  # [n]
    log_prob: NDArray[np.float32]  # [n]
    value: NDArray[np.float32]  # [n]
    success: NDArray[np.int8]  # [n]  `spec.SUCCEEDED` or `FAILED` where an episode ended and the env judged it, else 0
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)  # [n, *extra]  arrays read beside the observation
    reward_parts: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # [n]     reward parts and measures

    @classmethod
    def blank(cls, spec: EnvSpec, n: int) -> Row:
        """Return a zeroed row with its own memory, outside any slot."""
        return cls(
            obs={leaf.name: np.zeros((n, *leaf.shape), leaf.dtype) for leaf in spec.obs},
            mask=np.zeros((n, spec.action.mask_size), np.bool_) if spec.masked else None,
            action=np.zeros((n, *spec.action.shape), spec.action.dtype),
            reward=np.zeros(n, np.float32),
            terminated=np.zeros(n, np.bool_),
            truncated=np.zeros(n, np.bool_),
            valid=np.zeros(n, np.bool_),
            log_prob=np.zeros(n, np.float32),
            value=np.zeros(n, np.float32),
            success=np.zeros(n, np.int8),
            extras={name: np.zeros((n, *extra.shape), extra.dtype) for name, extra in spec.extras.items()},
            reward_parts={name: np.zeros(n, np.float32) for name in spec.reward_parts},
        )

    def at(self, t: Any, act: Any = None) -> Row:
        """Return row t of a stack of rows (row `act` of the fields that row T lacks), or the columns of an index."""
        act = t if act is None else act
        return Row(
            obs={name: leaf[t] for name, leaf in self.obs.items()},
            mask=None if self.mask is None else self.mask[t],
            action=self.action[act],
            reward=self.reward[act],
            terminated=self.terminated[act],
            truncated=self.truncated[act],
            valid=self.valid[act],
            log_prob=self.log_prob[act],
            value=self.value[t],
            success=self.success[act],
            extras={name: extra[t] for name, extra in self.extras.items()},
            reward_parts={name: reward_parts[act] for name, reward_parts in self.reward_parts.items()},
        )

    def show(self, other: Row, at: Any = ...) -> None:
        """Copy observations, masks and extras from another row, to position `at`."""
        for name, leaf in self.obs.items():
            leaf[at] = other.obs[name]
        if self.mask is not None and other.mask is not None:
            self.mask[at] = other.mask
        for name, extra in self.extras.items():
            extra[at] = other.extras[name]

    def tell(self, other: Row, at: Any) -> None:
        """Copy rewards, episode ends, `success` and `valid` from another row, to position `at`."""
        self.reward[at], self.terminated[at] = other.reward, other.terminated
        self.truncated[at], self.valid[at] = other.truncated, other.valid
        self.success[at] = other.success
