"""Validates the arguments of a vector env's methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import error as gym_error
from numpy.typing import ArrayLike, NDArray


def checked_ids(ids: ArrayLike | None, n: int, out: frozenset[int]) -> NDArray[np.intp]:
    """Env indices as an array; None for all.

    Args:
        ids: The caller's argument.
        n: Number of envs.
        out: Envs with a pending step.

    Raises:
        ValueError: An entry is not an env index, or repeats.
        AlreadyPendingCallError: An env has a pending step.
    """
    envs = np.arange(n) if ids is None else np.asarray(ids)
    if envs.ndim != 1 or envs.dtype.kind not in "iu" or not len(envs):
        raise ValueError(f"ids: must be a list of env indices (got {envs.dtype} of shape {envs.shape}).")
    if envs.min() < 0 or envs.max() >= n:
        raise ValueError(f"ids: must be between 0 and {n - 1} (got {envs.min()} to {envs.max()}).")
    if len(np.unique(envs)) != len(envs):
        raise ValueError(f"ids: must not repeat (got {envs.tolist()}).")
    if busy := sorted(out.intersection(envs.tolist())):
        raise gym_error.AlreadyPendingCallError(
            f"send: envs {busy[:8]} have a pending step. Call `recv` for them first.", "send"
        )
    return envs.astype(np.intp)


def env_indices(indices: Iterable[int], n: int) -> list[int]:
    """Indices from 0 on of envs that are addressed like the entries of a list: -1 is the last env.

    Raises:
        IndexError: There is no such env.
    """
    found = [int(index) for index in indices]
    for index in found:
        if not -n <= index < n:
            raise IndexError(f"indices: must be from {-n} to {n - 1}, because there are {n} envs (got {index}).")
    return [index % n for index in found]


def seeds_of(seed: int | Sequence[int | None] | None, n: int) -> list[int | None]:
    """The seed of each env: `seed + i` for an integer, or the given list.

    Raises:
        ValueError: The list has another length than n.
    """
    if seed is None:
        return [None] * n
    if isinstance(seed, int | np.integer):
        return [int(seed) + i for i in range(n)]
    seeds = list(seed)
    if len(seeds) != n:
        raise ValueError(f"seed: a list must have one seed per env ({n}; got {len(seeds)}).")
    return seeds


def masked(options: dict[str, Any] | None, n: int) -> tuple[list[int], dict[str, Any] | None]:
    """Split `options` into the envs to reset and the options for their `reset`.

    Raises:
        TypeError: The mask is not a bool array.
        ValueError: The mask has another shape than (n,), or selects no env.
    """
    if options is None or "reset_mask" not in options:
        return list(range(n)), options
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"reset_mask: must be a numpy array of bool (got {getattr(mask, 'dtype', type(mask))}).")
    if mask.shape != (n,) or not mask.any():
        raise ValueError(f"reset_mask: must have shape ({n},) and select at least one env (got {mask}).")
    return np.flatnonzero(mask).tolist(), {key: value for key, value in options.items() if key != "reset_mask"}
