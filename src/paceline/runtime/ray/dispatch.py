"""What nodes have to be told: put into the object store once, and taken from there by all of them.

driver's arena --one copy--> object store --> node 0 --one copy--> its arena
                                          ==> node 1 --one copy--> its arena
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Job
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.placement import PlacedPool
from paceline.runtime.ray.transfer import Transfer


class Due(NamedTuple):
    """What to tell."""

    names: Sequence[tuple[str, Hashable]]
    """Of each load, with its token."""
    loads: Sequence[Any]
    """Arrays, or a reference to them."""


class Dispatch:
    """The driver's end of `Transfer.down`.

    Args:
        freight: What there is to tell.
        arena: Where it stands.
        cluster: Whose object store.
    """

    def __init__(self, transfer: Transfer[Job], arena: Arena, cluster: RayCluster) -> None:
        self._freight, self._arena, self._cluster = transfer, arena, cluster
        self._sent: dict[str, tuple[Hashable, Any]] = {}  # of each load the newest: its token, and what to send

    def due(self, pool: PlacedPool, command: str, commands: int, *, only_news: bool = False) -> Due:
        """What a crew has to be told before a command.

        Args:
            pool: Whom.
            command: Before what.
            commands: How many were started.
            only_news: Leave out what is always told.
        """
        names: list[tuple[str, Hashable]] = []
        loads = []
        for load in self._freight.loads(command):
            token = self._freight.token(load, self._arena, commands)
            if only_news if token is None else pool.tokens.get(load) == token:
                continue
            sent = self._sent.get(load)
            if sent is None or token is None or sent[0] != token:
                parts = list(self._freight.down(load, self._arena, None, ()))
                sent = self._sent[load] = token, self._cluster.put_parts(parts)
            pool.tokens[load] = token
            names.append((load, token))
            loads.append(sent[1])
        return Due(names, loads)
