"""Sends driver data (such as weights) to the nodes: stored once in Ray's object store, and read there by all nodes.

driver's arena --one copy--> object store --> node 0 --one copy--> its arena
                                          ==> node 1 --one copy--> its arena
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Job
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.placement import PlacedPool
from paceline.runtime.ray.transfer import Transfer


class Dispatch:
    """The driver's side of `Transfer.down`.

    Args:
        transfer: Names the loads.
        arena: The driver's arena, which holds their arrays.
        cluster: Holds the object store.
    """

    def __init__(self, transfer: Transfer[Job], arena: Arena, cluster: RayCluster) -> None:
        self._transfer, self._arena, self._cluster = transfer, arena, cluster
        self._sent: dict[str, tuple[Hashable, Any]] = {}  # by load: its newest token, and what to send

    def due(self, pool: PlacedPool, command: str, commands: int, *, only_news: bool = False) -> dict[str, Any]:
        """Return the loads that a pool needs before a call and does not have yet.

        A *load* is a named list of arrays; its *token* changes when its content does.

        Args:
            pool: The pool; its tokens are updated.
            command: Name of the call.
            commands: Number of calls to all workers so far.
            only_news: Leave out loads without a token, which are sent with every call.

        Returns:
            By name of the load its arrays, or a reference to them.
        """
        due = {}
        for load in self._transfer.loads(command):
            token = self._transfer.token(load, self._arena, commands)
            if only_news if token is None else pool.tokens.get(load) == token:
                continue
            sent = self._sent.get(load)
            if sent is None or token is None or sent[0] != token:
                parts = list(self._transfer.down(load, self._arena, None, ()))
                sent = self._sent[load] = token, self._cluster.put_parts(parts)
            pool.tokens[load] = token
            due[load] = sent[1]
        return due
