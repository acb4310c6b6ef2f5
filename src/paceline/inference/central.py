"""How workers and driver agree on central inference."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.collect.inference_client import LaneShare, Mailbox, RemoteActor, lanes_of, mailbox_fields
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.runtime.inference_requests import inference_request_fields
from paceline.runtime.protocol import Share


@dataclass(frozen=True, kw_only=True, slots=True)
class Central:
    """The driver runs the policy, and workers ask."""

    groups: int
    """That go through the policy together."""
    devices: tuple[str, ...]
    """Where: chunks of groups take turns."""
    whole: bool = True
    """Whether a forward waits for all groups that are going to ask."""
    single: bool = False
    """Whether each group asks by itself."""

    def fields(self, shape: SlotShape, workers: int) -> list[Field]:
        """What an arena must hold."""
        return [
            *mailbox_fields(shape.spec, shape.n_envs),
            *inference_request_fields(shape.groups, workers, len(self.devices)),
        ]

    def lanes(self, share: Share) -> list[LaneShare]:
        """The groups of a worker that ask together."""
        return lanes_of(share.worker, share.first_group, share.groups, self.groups, single=self.single)

    def actor(self, arena: Arena, shape: SlotShape, lane: LaneShare) -> RemoteActor:
        """Asks for a lane."""
        mailbox = Mailbox(arena, shape.spec, shape.columns(lane.first_group, lane.groups))
        return RemoteActor(lane, lane.chunk % len(self.devices), mailbox)
