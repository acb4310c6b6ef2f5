"""Normalises observations and rewards by running statistics.

The statistics are constant while a rollout is collected: workers only read them, and the driver updates them between
rollouts with the whole `[T, B]` batch. So all envs use the same numbers, for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.errors import CheckpointError
from paceline.nets.features import Leaves
from paceline.spec import EnvSpec, Leaf

CLIP = 10.0
"""Normalised values are clipped to this many standard deviations."""
_EPSILON = 1e-8

Floats = NDArray[np.float32]


class RunningMoments:
    """Count, mean and sum of squared deviations, merged batch by batch in float64."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)

    def update(self, rows: NDArray[Any]) -> None:
        """Merge rows `[n, *shape]` by the formula of Chan, Golub and LeVeque; skips rows with NaN or infinite values.

        A single NaN in the statistics would turn every later observation into NaN.
        """
        finite = np.isfinite(rows).all(tuple(range(1, rows.ndim)))
        if not finite.all():
            rows = rows[finite]
        if len(rows) == 0:
            return
        mean = rows.mean(0, dtype=np.float64)
        deviation = rows - mean
        squares = np.square(deviation, deviation).sum(0)
        total = self.count + len(rows)
        shift = mean - self.mean
        self.squares = self.squares + squares + np.square(shift) * (self.count * len(rows) / total)
        self.mean = self.mean + shift * (len(rows) / total)
        self.count = total

    @property
    def inv_std(self) -> NDArray[np.float64]:
        """One over the standard deviation; one before the first update."""
        if self.count == 0:
            return np.ones_like(self.mean)
        return np.asarray(1.0 / np.sqrt(self.squares / self.count + _EPSILON))

    def state(self, prefix: str) -> dict[str, NDArray[np.float64]]:
        """Return the state for a checkpoint, as arrays."""
        return {
            f"{prefix}count": np.asarray(self.count),
            f"{prefix}mean": self.mean.copy(),
            f"{prefix}squares": self.squares.copy(),
        }

    def load(self, state: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Restore what `state` returned."""
        self.count = float(_entry(state, f"{prefix}count", ()))
        self.mean = _entry(state, f"{prefix}mean", self.mean.shape)
        self.squares = _entry(state, f"{prefix}squares", self.squares.shape)


class ObsNormaliser:
    """Shifts and scales float vector leaves to mean 0 and standard deviation 1; returns other leaves unchanged.

    Args:
        spec: Spec of the env.
        arrays: A float32 array `[2, *leaf]` (mean, one over the standard deviation) for each of
            `normalised_leaves(spec)`. The caller owns them; usually they are in shared memory. None allocates them.
        attach: Keep the content of the arrays, because another process fills them (workers).
    """

    def __init__(self, spec: EnvSpec, arrays: Mapping[str, Floats] | None = None, *, attach: bool = False) -> None:
        leaves = normalised_leaves(spec)
        self.arrays = (
            {leaf.name: np.empty((2, *leaf.shape), np.float32) for leaf in leaves} if arrays is None else arrays
        )
        self._moments = {leaf.name: RunningMoments(leaf.shape) for leaf in leaves}
        if not attach:
            self._publish()

    def update(self, obs: Leaves, valid: NDArray[np.bool_] | None = None) -> None:
        """Update the statistics with a rollout.

        Args:
            obs: `[T, B, *leaf]` by leaf name.
            valid: `[T, B]` False for rows to skip (a vector env only reset in them); None if all rows count.
        """
        for name, moments in self._moments.items():
            rows = obs[name].reshape(-1, *moments.mean.shape) if valid is None else obs[name][valid]
            moments.update(rows)
        self._publish()

    def apply(self, obs: Leaves) -> dict[str, NDArray[Any]]:
        """Return normalised leaves as new arrays; any leading axes."""
        return {name: self._scaled(name, leaf, None) if name in self.arrays else leaf for name, leaf in obs.items()}

    def apply_torch(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same as `apply` on tensors, with identical bits."""
        result = dict(obs)
        for name, array in self.arrays.items():
            mean, inv_std = torch.from_numpy(np.asarray(array)).to(result[name].device)
            result[name] = ((result[name] - mean) * inv_std).clamp_(-CLIP, CLIP)
        return result

    def applier(self, rows: int) -> Callable[[Leaves], Leaves]:
        """Return a version of `apply` for `rows` rows that allocates nothing; each call overwrites the last result."""
        buffers = {name: np.empty((rows, *array.shape[1:]), np.float32) for name, array in self.arrays.items()}

        def applied(obs: Leaves) -> Leaves:
            result = dict(obs)
            for name, buffer in buffers.items():
                result[name] = self._scaled(name, obs[name], buffer)
            return result

        return applied

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the state for a checkpoint, as arrays."""
        return {k: v for name, m in self._moments.items() for k, v in m.state(f"{name}:").items()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned, and write it to the shared arrays."""
        for name, moments in self._moments.items():
            moments.load(state, f"{name}:")
        self._publish()

    def _publish(self) -> None:
        """Write the statistics to the arrays that workers read."""
        for name, moments in self._moments.items():
            self.arrays[name][0] = moments.mean
            self.arrays[name][1] = moments.inv_std

    def _scaled(self, name: str, leaf: NDArray[Any], out: Floats | None) -> Floats:
        mean, inv_std = self.arrays[name]
        out = np.subtract(leaf, mean, out=out)
        np.multiply(out, inv_std, out=out)
        np.maximum(out, np.float32(-CLIP), out=out)
        np.minimum(out, np.float32(CLIP), out=out)
        return out


class RewardNormaliser:
    """Divides rewards by the running standard deviation of the discounted return, so that values stay near one.

    Args:
        n_envs: Number of envs, B. The discounted return of each env continues across rollouts.
        gamma: Discount factor.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.carry = np.zeros(n_envs)
        self._moments = RunningMoments(())

    def update(self, reward: NDArray[Any], ended: NDArray[np.bool_], valid: NDArray[np.bool_] | None = None) -> None:
        """Update the statistics with a rollout.

        Args:
            reward: `[T, B]`
            ended: `[T, B]` terminated or truncated.
            valid: `[T, B]` False for rows to skip (a vector env only reset in them); None if all rows count.
        """
        reward = np.where(np.isfinite(reward), reward, 0.0)
        returns = np.empty(reward.shape)
        carry = self.carry
        keep = self.gamma * ~ended
        for t in range(len(reward)):
            returns[t] = carry + reward[t]
            carry = returns[t] * keep[t]
        self.carry = carry
        self._moments.update(returns.reshape(-1) if valid is None else returns[valid])

    def forget(self, envs: list[int]) -> None:
        """Reset the discounted return of envs that had to start a new episode after a failure."""
        self.carry[envs] = 0.0

    def apply(self, reward: Tensor) -> Tensor:
        """Return the scaled rewards, clipped to `CLIP`."""
        return (reward * float(self._moments.inv_std)).clamp_(-CLIP, CLIP)

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the state for a checkpoint, as arrays."""
        return {"carry": self.carry.copy(), **self._moments.state("return:")}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        carry = _entry(state, "carry", self.carry.shape)
        self._moments.load(state, "return:")
        self.carry = carry


def normalised_leaves(spec: EnvSpec) -> tuple[Leaf, ...]:
    """Return the leaves to normalise: float vectors."""
    return tuple(leaf for leaf in spec.obs if leaf.kind == "vector" and np.issubdtype(leaf.dtype, np.floating))


def _entry(state: Mapping[str, NDArray[Any]], key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    if key not in state or state[key].shape != shape:
        found = state[key].shape if key in state else "missing"
        raise CheckpointError(
            f"normaliser entry {key!r}: must have shape {shape} ({found}). The checkpoint belongs to another env."
        )
    return np.array(state[key], np.float64)
