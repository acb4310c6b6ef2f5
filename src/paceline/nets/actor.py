"""The forward pass used while collecting: numpy leaves in, numpy parameters and values out.

Whatever the policy, each group is computed by itself, because the last bits of a matrix
product depend on how many rows it has: results must not depend on which groups share a worker.
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
from paceline.spec import EnvSpec

Floats = NDArray[np.float32]


class Actor(Protocol):
    """A policy that can be asked what to do. What it returns is overwritten by the next call."""

    def __call__(self, obs: Leaves, /) -> tuple[Floats, Floats]:
        """Leaves `[n, *leaf]` -> params `[n, P]`, value `[n]`."""


Seat: TypeAlias = Callable[[Leaves], Floats]
"""Leaves `[1, *leaf]` -> params `[1, P]`, overwritten by the next call."""


@runtime_checkable
class PatientActor(Actor, Protocol):
    """An actor whose values can wait: for many rows at once they cost much less, to the same bits."""

    def begin(self) -> None:
        """Take over the newest weights; `act` and `values` need not, until it is called again."""

    def act(self, obs: Leaves, /) -> Floats:
        """Leaves `[n, *leaf]` -> params `[n, P]` alone."""

    def values(self, obs: Leaves, value: Floats, /) -> None:
        """Leaves `[R, n, *leaf]` -> `value` `[R, n]`."""

    def seat(self, at: int, /) -> Seat:
        """Acts for row `at` of a group by itself, to the same bits; several seats may act at the same time."""


def actor_for(
    policy: nn.Module, spec: EnvSpec, groups: int, group_size: int, normaliser: ObsNormaliser | None = None
) -> Actor:
    """An actor for `groups * group_size` rows, a patient one where the policy has that.

    It follows later in-place updates of the policy's weights and of the normaliser's arrays.

    Args:
        policy: On the CPU, its parameters already where they will stay.
        spec: Names and shapes of the leaves.
        groups: Groups this worker owns.
        group_size: Envs in each.
        normaliser: Applied to the leaves first.
    """
    numpy_actor = getattr(policy, "numpy_actor", None)
    if numpy_actor is None:
        forward: Actor = _TorchActor(policy, spec, groups, group_size)
    else:
        forward = numpy_actor(groups, group_size)
    if normaliser is None:
        return forward
    n = groups * group_size
    return (
        _PatientNormalised(forward, normaliser, n)
        if isinstance(forward, PatientActor)
        else _Normalised(forward, normaliser, n)
    )


class _TorchActor:
    """Any module, a group at a time."""

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
                # Copies, which begin where vectors are loaded fastest: a product's last bits may depend on that, too,
                # and where a group begins among a worker's rows depends on who owns it.
                group = {name: leaf[rows].clone() for name, leaf in leaves.items()}
                params[rows], value[rows] = self._policy(policy_input(self._spec, group))
        return self._params, self._value


class _Normalised:
    """An actor that sees normalised observations."""

    def __init__(self, actor: Actor, normaliser: ObsNormaliser, n: int) -> None:
        self._actor, self._scale = actor, normaliser.applier(n)

    def __call__(self, obs: Leaves) -> tuple[Floats, Floats]:
        return self._actor(self._scale(obs))


class _PatientNormalised(_Normalised):
    """The same of a patient one."""

    def __init__(self, actor: PatientActor, normaliser: ObsNormaliser, n: int) -> None:
        super().__init__(actor, normaliser, n)
        self._patient, self._normaliser = actor, normaliser

    def begin(self) -> None:
        self._patient.begin()

    def act(self, obs: Leaves) -> Floats:
        return self._patient.act(self._scale(obs))

    def values(self, obs: Leaves, value: Floats) -> None:
        self._patient.values(self._normaliser.apply(obs), value)

    def seat(self, at: int) -> Seat:
        act, scale = self._patient.seat(at), self._normaliser.applier(1)
        return lambda obs: act(scale(obs))
