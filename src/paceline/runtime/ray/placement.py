"""Who is where: the crews of a run on the nodes of a Ray cluster, and where they go when a node is lost.

    bundle 0 ── node ── crew: workers 0..W-1
    bundle 1 ── node ── crew: workers W..2W-1  ── node lost ──►  pieces on other nodes ── a node joins ──►  one again

Workers and their groups are numbered once and for all: whoever hosts them, they do the same.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from paceline.errors import WorkerDied, WorkerError
from paceline.runtime.protocol import Share, shares
from paceline.runtime.ray.cluster import Node, RayCluster
from paceline.runtime.ray.node_pool import NodePoolSetup, Said

OnNodeLoss = Literal["continue", "wait"]
POLL_S = 1.0
LOOK_S = 2.0
"""How often to look whether a lost node has been replaced."""
LOG = logging.getLogger("paceline")


@dataclass(slots=True)
class PlacedPool:
    """The driver's end of the workers on a node: all of its own, or some of a node that was lost."""

    key: int
    node: Node
    bundle: int
    """The node that these workers belong to; another one than `node` where that was lost."""
    shares: list[Share]
    """As the driver numbers them."""
    new: set[int]
    """Workers that were never told anything."""
    tokens: dict[str, Hashable] = field(default_factory=dict)
    """What it was told last."""
    begun: bool = False
    """Whether it was told of the command under way."""
    running: Any = None
    """The answer to that, to be waited for."""
    hearing: Any = None
    """The answer to the question what was heard."""

    @property
    def first(self) -> int:
        """Its first worker."""
        return self.shares[0].worker

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.node.name if self.bundle == self.node.bundle else f"{self.node.name}, in place of {self.bundle}"

    def share(self, worker: int) -> Share:
        """What one of them owns."""
        return self.shares[worker - self.first]


class Placement:
    """All crews of a run, and the workers that have lost theirs."""

    def __init__(
        self,
        cluster: RayCluster,
        groups: int,
        transfer: Any,
        order: Callable[[int, int, int], NodePoolSetup],
        *,
        start_timeout_s: float,
        step_timeout_s: float,
        on_node_loss: OnNodeLoss,
    ) -> None:
        """Know what there is to host; `launch` starts it.

        Args:
            cluster: Room.
            groups: Groups to share out.
            transfer: A reference to the packed freight.
            order: First group, groups, workers -> all that a crew is started with.
            start_timeout_s: How long a node may take to start.
            step_timeout_s: How long it may go without an answer.
            on_node_loss: Whether the nodes that are left take over, or a new one is waited for.
        """
        self._cluster, self._freight, self._order = cluster, transfer, order
        self._start_s, self._step_s, self._on_loss = start_timeout_s, step_timeout_s, on_node_loss
        self.shares = shares(groups, cluster.nodes * cluster.workers)
        self.pool_of: list[PlacedPool | None] = [None] * len(self.shares)
        """Of each worker."""
        self.lost: dict[int, str] = {}
        """Workers that have yet to be replaced, and why."""
        self._keys = itertools.count()
        self._nodes: dict[int, Node] = {}  # by bundle
        self._coming: dict[int, Node] = {}  # for those whose workers are guests elsewhere
        self._pings: dict[int, tuple[Any, float]] = {}
        self._looked = perf_counter()

    def launch(self) -> None:
        """Start a node for every bundle, and its crew.

        Raises:
            WorkerError: One cannot be started.
        """
        coming = [self._cluster.start(bundle) for bundle in range(self._cluster.nodes)]
        self._nodes = {node.bundle: node for node in coming}
        deadline = perf_counter() + self._start_s
        for node in coming:
            if not self._cluster.greet(node, max(0.0, deadline - perf_counter())):
                raise WorkerError(
                    f"{node.name}: cannot be used ({self._start_s:g} s were allowed). Is paceline installed there? If "
                    f"it is only slow, raise --start-timeout-s.{node.trouble}"
                )
        self._open([(node, node.bundle, self._of(node.bundle)) for node in coming])
        for pool in self.crews:
            pool.new.clear()
        self.raise_lost()

    @property
    def crews(self) -> list[PlacedPool]:
        """In the order of their workers."""
        return list({pool.key: pool for pool in self.pool_of if pool is not None}.values())

    def waits(self, pool: PlacedPool) -> bool:
        """Whether some of its workers have yet to be replaced."""
        return any(share.worker in self.lost or share.worker in pool.new for share in pool.shares)

    def raise_lost(self) -> None:
        """Raise WorkerDied if some worker has yet to be replaced."""
        if self.lost:
            worker = min(self.lost)
            raise WorkerDied(self.lost[worker], worker)

    def settle(self, worker: int) -> PlacedPool:
        """A home for a worker that has none, and for those beside it.

        Raises:
            WorkerDied: That home was lost at once.
            WorkerError: There is nowhere to go.
        """
        bundle = worker // self._cluster.workers
        unplaced = [share for share in self._of(bundle) if self.pool_of[share.worker] is None]
        row = [share for share in unplaced if all(self.pool_of[w] is None for w in _between(share.worker, worker))]
        node = self._node(bundle)
        if node is not None:
            self._open([(node, bundle, row)])
        else:
            left = list(self._nodes.values())
            parts = shares(len(row), min(len(left), len(row)))
            pieces = [row[part.first_group : part.first_group + part.groups] for part in parts]
            self._open([(other, bundle, piece) for other, piece in zip(left, pieces, strict=False)])
        pool_of = self.pool_of[worker]
        if pool_of is None:
            raise WorkerDied(self.lost[worker], worker)
        return pool_of

    def welcome(self) -> None:
        """Where a lost node has been replaced, have its workers move there: they count as lost, and come anew."""
        guests = {pool.bundle for pool in self.crews if pool.bundle != pool.node.bundle}
        if not guests or perf_counter() - self._looked < LOOK_S:
            return
        self._looked = perf_counter()
        for bundle in guests:
            coming, placed = self._coming.get(bundle), self._cluster.placed(bundle)
            if placed and coming is None:
                self._coming[bundle] = self._cluster.start(bundle)
            elif coming is not None and not placed:
                self._cluster.kill(self._coming.pop(bundle))
            elif coming is not None and self._cluster.greet(coming, 0.0):
                self._nodes[bundle] = self._coming.pop(bundle)
                for pool in [pool for pool in self.crews if pool.bundle == bundle]:
                    pool.node.actor.shut.remote(pool.key)
                    self._abandon(pool, f"moves to {coming.name}, which has joined.")

    def await_answer(self, pool: PlacedPool, reference: Any) -> Said | None:
        """Wait for an answer while the node is alive; see `answer`."""
        while not self.wait([reference], POLL_S, [pool.node]):
            pass
        return self.answer(pool, reference)

    def answer(self, pool: PlacedPool, reference: Any) -> Said | None:
        """What a crew answers, once it is there; None if it is lost, or one of its workers died.

        Raises:
            WorkerError: Something failed there.
        """
        said: Said | None = self._get(pool, reference)
        return said if said is not None and self._sound(pool, said) else None

    def heard(self, pool: PlacedPool, reference: Any) -> list[Said]:
        """The good of what a crew has heard.

        Raises:
            WorkerError: Something failed there.
        """
        heard: list[Said] = self._get(pool, reference) or []
        return [said for said in heard if self._sound(pool, said)]

    def wait(self, references: list[Any], timeout_s: float, nodes: Sequence[Node]) -> list[Any]:
        """Those that are there by then. A node that does not even answer a ping counts as lost."""
        ready = self._cluster.ready(references, timeout_s) if references else []
        for node in [] if ready else nodes:
            ping, since = self._pings.get(id(node), (None, 0.0))
            silent_s = perf_counter() - since
            if ping is None or (silent_s > POLL_S and self._cluster.ready([ping], 0.0)):
                ping = node.actor.ping.options(concurrency_group="ping").remote()
                self._pings[id(node)] = ping, perf_counter()
            elif silent_s > self._step_s:
                # The machine or the network may be stuck: others take over.
                self._lose(node, TimeoutError(f"no answer for {self._step_s:g} s"))
        return ready

    def close(self) -> None:
        """End everything."""
        for node in self._coming.values():
            self._cluster.kill(node)
        self._cluster.close(list(self._nodes.values()))

    def _of(self, bundle: int) -> list[Share]:
        """The workers that belong to a node."""
        each = self._cluster.workers
        return self.shares[bundle * each : (bundle + 1) * each]

    def _open(self, wanted: Sequence[tuple[Node, int, list[Share]]]) -> None:
        """Start crews, all at once."""
        opening = []
        for node, bundle, mine in wanted:
            pool = PlacedPool(next(self._keys), node, bundle, mine, new={share.worker for share in mine})
            order = self._order(mine[0].first_group, sum(share.groups for share in mine), len(mine))
            opening.append((pool, node.actor.open.remote(pool.key, self._freight, order)))
        for pool, reference in opening:
            for share in pool.shares:
                self.pool_of[share.worker] = pool
            self.await_answer(pool, reference)

    def _node(self, bundle: int) -> Node | None:
        """The node of a bundle, started anew if need be; None if the others are to take over."""
        if bundle in self._nodes:
            return self._nodes[bundle]
        began, said = perf_counter(), False
        while True:
            if self._cluster.placed(bundle) and (node := self._start(bundle)) is not None:
                self._nodes[bundle] = node
                return node
            waited_s = perf_counter() - began
            if self._on_loss == "continue":
                if self._nodes:
                    return None
                if waited_s > self._start_s:
                    raise WorkerError(f"nodes: none is left, and none came in {self._start_s:g} s. See `ray status`.")
            if not said:
                LOG.warning("node %d is lost: waiting until the cluster has another one with room", bundle)
                said = True
            time.sleep(POLL_S)

    def _start(self, bundle: int) -> Node | None:
        """An actor in a bundle, as soon as it answers; None if the bundle loses its node meanwhile."""
        node = self._coming.pop(bundle, None) or self._cluster.start(bundle)
        deadline = perf_counter() + self._start_s
        while perf_counter() < deadline and self._cluster.placed(bundle):
            if self._cluster.greet(node, POLL_S):
                return node
        self._cluster.kill(node)
        return None

    def _abandon(self, pool: PlacedPool, why: str) -> None:
        """Its workers are gone."""
        for share in pool.shares:
            if self.pool_of[share.worker] is pool:
                self.pool_of[share.worker] = None
                self.lost[share.worker] = f"worker {share.worker}: {why}"

    def _lose(self, node: Node, error: Exception) -> None:
        """A node is gone, with all that ran there."""
        if self._nodes.get(node.bundle) is node:
            del self._nodes[node.bundle]
        self._pings.pop(id(node), None)
        self._cluster.kill(node)
        for pool in [pool for pool in self.crews if pool.node is node]:
            self._abandon(pool, f"{node.name} was lost ({type(error).__name__}).")

    def _get(self, pool: PlacedPool, reference: Any) -> Any:
        """What a reference stands for; None if the node is lost."""
        try:
            return self._cluster.get(reference)
        except self._cluster.lost as error:
            self._lose(pool.node, error)
            return None

    def _sound(self, pool: PlacedPool, said: Said) -> bool:
        match said.kind:
            case "died":
                self.lost[pool.first + said.worker] = f"{pool.name}: {said.value}"
            case "error":
                raise WorkerError(f"{pool.name}: {said.value}")
        return said.kind == "ok"


def _between(one: int, other: int) -> range:
    return range(min(one, other), max(one, other) + 1)
