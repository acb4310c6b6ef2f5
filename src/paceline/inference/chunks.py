"""Chunks: the groups that go through the policy together in central inference, and the policy on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.collect.inference_client import Mailbox
from paceline.inference.central import Central
from paceline.memory.shared import Arena, ArraysByName
from paceline.memory.slot_shape import SlotShape
from paceline.nets.actor import Actor
from paceline.nets.features import Leaves, policy_input
from paceline.nets.flat import bind
from paceline.nets.normalise import ObsNormaliser
from paceline.nets.policy import PolicyRecipe
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec


@dataclass(frozen=True, slots=True)
class Chunk:
    """Groups whose actions are computed in one forward pass."""

    lanes: NDArray[np.int64]
    workers: tuple[int, ...]
    """[lanes] the worker of each lane."""
    rows: tuple[slice, ...]
    """[lanes] the rows of each lane in the mailbox."""
    mailbox: Mailbox
    actor: Actor

    def answer(self, places: Iterable[int]) -> None:
        """Run the policy for all envs, and write the results of these lanes; others may still read their old ones."""
        params, value = self.actor(self.mailbox.obs)
        for place in places:
            rows = self.rows[place]
            self.mailbox.params[rows] = params[rows]
            self.mailbox.value[rows] = value[rows]


class DeviceActor:
    """Runs the policy for a whole chunk on a device.

    Args:
        policy: A copy of the policy for this actor, which moves it to the device.
        spec: Spec of the envs.
        weights: [P] the newest weights, which `renew` copies.
        device: The device.
        normaliser: Normalises the observations first; None for no normalisation.
        rows: Number of envs in the chunk.
    """

    def __init__(
        self,
        policy: nn.Module,
        spec: EnvSpec,
        weights: NDArray[np.float32],
        device: torch.device,
        normaliser: ObsNormaliser | None,
        rows: int,
    ) -> None:
        self._policy, self._spec, self._device = policy.to(device), spec, device
        self._source = torch.from_numpy(weights)
        self._vector = torch.empty(len(weights), device=device)
        bind(self._policy, self._vector)
        self._scale: Callable[[Leaves], Leaves] | None = None if normaliser is None else normaliser.applier(rows)
        self.renew()

    def renew(self) -> None:
        """Copy the newest weights to the device."""
        with torch.no_grad():
            self._vector.copy_(self._source)

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return action parameters and values of all envs, from one forward pass."""
        obs = obs if self._scale is None else self._scale(obs)
        with torch.inference_mode():
            leaves = {leaf.name: torch.from_numpy(obs[leaf.name]).to(self._device) for leaf in self._spec.obs}
            params, value = self._policy(policy_input(self._spec, leaves))
            return params.cpu().numpy(), value.cpu().numpy()


class ActingRecipe(Protocol):
    """What a chunk's actor is built from: sizes, network and normaliser."""

    @property
    def shape(self) -> SlotShape:
        """Sizes of a rollout, and the env's spaces."""

    @property
    def policy(self) -> PolicyRecipe:
        """Builds the policy network."""

    def obs_normaliser(self, arrays: ArraysByName, *, attach: bool = False) -> ObsNormaliser | None:
        """Return the observation normaliser, whose statistics are in `arrays`; None without normalisation."""

    def actor(self, policy: nn.Module, groups: int, normaliser: ObsNormaliser | None = None) -> Actor:
        """Return an actor for `groups` groups at once."""


class ActingPlan(Protocol):
    """The part of an algorithm's plan that the inference server uses."""

    @property
    def base(self) -> ActingRecipe:
        """What actors are built from."""

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """Return the weights and statistics by name, and a function that updates them to the newest."""


def chunks_of(
    program: ActingPlan, central: Central, arena: Arena, lanes: Sequence[Share], every: int = 1, first: int = 0
) -> tuple[list[Chunk], Callable[[], None]]:
    """Build the chunks that one server answers, with their actors.

    Args:
        program: The plan of the workers.
        central: Settings of central inference.
        arena: Shared memory.
        lanes: All lanes of the run.
        every: Number of servers: this server gets the chunks `first`, `first + every`, and so on.
        first: Index of this server.

    Returns:
        The chunks, and a function that copies the newest weights to their actors.
    """
    base = program.base
    spec, size = base.shape.spec, base.shape.group_size
    arrays, renew_arrays = program.acting(arena)
    on_devices: list[DeviceActor] = []
    chunks = []
    for number in range(first, -(-base.shape.groups // central.groups), every):
        own = [lane for lane in lanes if central.chunk(lane) == number]
        groups = sum(lane.groups for lane in own)
        begin = number * central.groups
        device = torch.device(central.devices[number % len(central.devices)])
        policy, normaliser = base.policy.build(spec), base.obs_normaliser(arrays, attach=True)
        actor: Actor
        if device.type == "cpu":
            bind(policy, torch.from_numpy(arrays("weights")))
            actor = base.actor(policy, groups, normaliser)
        else:
            actor = DeviceActor(policy, spec, arrays("weights"), device, normaliser, groups * size)
            on_devices.append(actor)
        mailbox = Mailbox(arena, spec, slice(begin * size, (begin + groups) * size))
        numbers = np.array([lane.first_group for lane in own])
        starts = [(lane.first_group - begin) * size for lane in own]
        rows = tuple(slice(start, start + lane.groups * size) for start, lane in zip(starts, own, strict=True))
        chunks.append(Chunk(numbers, tuple(lane.worker for lane in own), rows, mailbox, actor))

    def renew() -> None:
        renew_arrays()
        for actor in on_devices:
            actor.renew()

    return chunks, renew
