"""Settings of central inference, and what workers and driver derive from them: arena fields, lanes, actors."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.collect.inference_client import LaneShare, Mailbox, RemoteActor, lanes_of, mailbox_fields
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

    def lanes(self, share: Share) -> list[LaneShare]:
        """Return the lanes of a worker: its groups, split into those that send requests together."""
        return lanes_of(share.worker, share.first_group, share.groups, self.groups, single=self.single)

    def actor(self, arena: Arena, shape: SlotShape, lane: LaneShare) -> RemoteActor:
        """Return the actor that requests actions for a lane."""
        mailbox = Mailbox(arena, shape.spec, shape.columns(lane.first_group, lane.groups))
        return RemoteActor(lane, lane.chunk % len(self.devices), mailbox)
