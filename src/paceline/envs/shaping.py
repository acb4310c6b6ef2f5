"""Reward shaping next to the env: what a shaper sees, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a worker's n envs. The arrays are the worker's own: read them, keep no reference."""

    extras: Mapping[str, NDArray[Any]]  # [n, *extra]        before the step
    obs: Mapping[str, NDArray[Any]]  # [n, *leaf]            what the action answered to
    action: NDArray[Any]  # [n, *act]                        stored form: categories count from zero
    reward: NDArray[np.float32]  # [n]                       the env's own
    terminated: NDArray[np.bool_]  # [n]
    truncated: NDArray[np.bool_]  # [n]
    valid: NDArray[np.bool_]  # [n]                          False: this step only reset the env
    extras_after: Mapping[str, NDArray[Any]]  # [n, *extra]  where the step led, before any reset


class RewardShaper(Protocol):
    """Adds parts to the env's reward, inside the worker. Its state is per env, and begins anew with every episode.

    To be put back after a failure it must be a function of the episode's transitions alone.
    """

    parts: tuple[str, ...]
    """Names of what it adds; each is logged by itself."""

    def begin(self, envs: NDArray[np.int64], extras: Mapping[str, NDArray[Any]]) -> None:
        """Episodes begin: `envs` are indices into the n envs, `extras` the readings of all n."""

    def __call__(self, step: Transition) -> Mapping[str, NDArray[np.float32]]:
        """What each part adds to the reward of every env: [n] by name."""


class ShaperMaker(Protocol):
    """Makes the shaper of n envs, inside the worker: a class, or anything else that pickles."""

    def __call__(self, n: int) -> RewardShaper:
        """A new shaper."""
