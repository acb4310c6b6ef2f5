"""Settings of central inference, and what workers and driver derive from them: arena fields, lanes, actors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.collect.inference_client import Mailbox, RemoteActor, mailbox_fields
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.inference_requests import inference_request_fields
from paceline.runtime.protocol import Share


@dataclass(frozen=True, kw_only=True, slots=True)
class Central:
    """Settings of central inference: the driver runs the policy, and workers request actions."""

    groups: int
    """Groups per forward pass (a chunk)."""
    devices: tuple[str, ...]
    """Devices that run the policy; chunks are assigned round-robin."""
    whole: bool = True
    """Whether a forward pass waits until all active lanes of its chunk have sent a request."""
    single: bool = False
    """Whether each group is a lane of its own."""

    def fields(self, shape: SlotShape, workers: int) -> list[Field]:
        """Return the arena fields of central inference."""
        return [
            *mailbox_fields(shape.spec, shape.n_envs),
            *inference_request_fields(shape.groups, workers, len(self.devices)),
        ]

    def lanes(self, share: Share) -> list[Share]:
        """Return the lanes of a worker: its groups, split at the chunk boundaries into those that share a request.

        A lane's first group is also its number.
        """
        lanes, at, end = [], share.first_group, share.first_group + share.groups
        while at < end:
            stop = at + 1 if self.single else min(end, (at // self.groups + 1) * self.groups)
            lanes.append(replace(share, first_group=at, groups=stop - at))
            at = stop
        return lanes

    def chunk(self, lane: Share) -> int:
        """Return the number of the lane's chunk, counted in group order."""
        return lane.first_group // self.groups

    def actor(self, arena: Arena, shape: SlotShape, lane: Share) -> RemoteActor:
        """Return the actor that requests actions for a lane."""
        mailbox = Mailbox(arena, shape.spec, shape.columns(lane.first_group, lane.groups))
        return RemoteActor(lane.first_group, self.chunk(lane) % len(self.devices), mailbox)
