"""The forward pass used while collecting: numpy leaves in, numpy parameters and values out.

Each group is computed separately, because the last bits of a matrix product depend on its number of rows, and results
must not depend on which groups share a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.nets.features import Leaves, policy_input
from paceline.nets.normalise import ObsNormaliser
from paceline.nets.policy import fast_method
from paceline.spec import EnvSpec

Floats = NDArray[np.float32]


class Actor(Protocol):
    """A policy's forward pass for acting. The next call overwrites what it returns."""

    def __call__(self, obs: Leaves, /) -> tuple[Floats, Floats]:
        """Leaves `[n, *leaf]` -> params `[n, P]`, value `[n]`."""


RowActor: TypeAlias = Callable[[Leaves], Floats]
"""Leaves `[1, *leaf]` -> params `[1, P]`, overwritten by the next call."""


@runtime_checkable
class DeferredValueActor(Actor, Protocol):
    """An actor that can defer values: computing them for many rows at once costs much less, with identical bits."""

    def begin(self) -> None:
        """Read the newest weights; `act` and `values` may use cached ones until the next call."""

    def act(self, obs: Leaves, /) -> Floats:
        """Leaves `[n, *leaf]` -> params `[n, P]`, without values."""

    def values(self, obs: Leaves, value: Floats, /) -> None:
        """Leaves `[R, n, *leaf]` -> `value` `[R, n]`."""

    def row_actor(self, at: int, /) -> RowActor:
        """Return an actor for row `at` of a group alone, with identical bits; row actors may run concurrently."""


def actor_for(
    policy: nn.Module, spec: EnvSpec, groups: int, group_size: int, normaliser: ObsNormaliser | None = None
) -> Actor:
    """Return an actor for `groups * group_size` rows, with deferred values if the policy supports them.

    It follows later in-place updates of the policy's weights and of the normaliser's arrays.

    Args:
        policy: On the CPU; its parameters must not be moved afterwards.
        spec: Spec of the env.
        groups: Number of groups of this worker.
        group_size: Envs per group.
        normaliser: Normalises the leaves first; None if observations are not normalised.
    """
    numpy_actor = fast_method(policy, "numpy_actor")
    if numpy_actor is None:
        forward: Actor = _TorchActor(policy, spec, groups, group_size)
    else:
        forward = numpy_actor(groups, group_size)
        if hasattr(forward, "seat") and not hasattr(forward, "row_actor"):
            forward.row_actor = forward.seat  # type: ignore[attr-defined] # a user's actor with the former name of `row_actor`
    if normaliser is None:
        return forward
    n = groups * group_size
    return (
        _NormalisedDeferred(forward, normaliser, n)
        if isinstance(forward, DeferredValueActor)
        else _Normalised(forward, normaliser, n)
    )


class _TorchActor:
    """Runs any torch module, one group at a time."""

    def __init__(self, policy: nn.Module, spec: EnvSpec, groups: int, group_size: int) -> None:
        self._policy, self._spec = policy, spec
        self._params = np.empty((groups * group_size, spec.action.param_size), np.float32)
        self._value = np.empty(groups * group_size, np.float32)
        self._out = torch.from_numpy(self._params), torch.from_numpy(self._value)
        self._slices = [slice(i * group_size, (i + 1) * group_size) for i in range(groups)]

    def __call__(self, obs: Leaves) -> tuple[Floats, Floats]:
        params, value = self._out
        with torch.inference_mode():
            leaves = {leaf.name: torch.from_numpy(obs[leaf.name]) for leaf in self._spec.obs}
            for rows in self._slices:
                # Clone, because a clone starts at an aligned address: the last bits of a product may depend on the
                # alignment, and the offset of a group among a worker's rows depends on which worker owns it.
                group = {name: leaf[rows].clone() for name, leaf in leaves.items()}
                params[rows], value[rows] = self._policy(policy_input(self._spec, group))
        return self._params, self._value


class _Normalised:
    """An actor that receives normalised observations."""

    def __init__(self, actor: Actor, normaliser: ObsNormaliser, n: int) -> None:
        self._actor, self._scale = actor, normaliser.applier(n)

    def __call__(self, obs: Leaves) -> tuple[Floats, Floats]:
        return self._actor(self._scale(obs))


class _NormalisedDeferred(_Normalised):
    """A `DeferredValueActor` that receives normalised observations."""

    def __init__(self, actor: DeferredValueActor, normaliser: ObsNormaliser, n: int) -> None:
        super().__init__(actor, normaliser, n)
        self._deferred, self._normaliser = actor, normaliser

    def begin(self) -> None:
        self._deferred.begin()

    def act(self, obs: Leaves) -> Floats:
        return self._deferred.act(self._scale(obs))

    def values(self, obs: Leaves, value: Floats) -> None:
        self._deferred.values(self._normaliser.apply(obs), value)

    def row_actor(self, at: int) -> RowActor:
        act, scale = self._deferred.row_actor(at), self._normaliser.applier(1)
        return lambda obs: act(scale(obs))
