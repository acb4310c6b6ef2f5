"""Placement of worker pools on the nodes of a Ray cluster, also after a node is lost.

    bundle 0 ── node ── pool: workers 0..W-1
    bundle 1 ── node ── pool: workers W..2W-1  ── node lost ──►  parts on other nodes  ── a node joins ──►  one pool

The numbers of workers and of their groups never change, so a worker computes the same on any node.
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
from paceline.runtime.ray.node_pool import NodePoolSetup, PoolReply

OnNodeLoss = Literal["continue", "wait"]
POLL_S = 1.0
LOOK_S = 2.0
"""How often to check whether Ray has replaced a lost node."""
LOG = logging.getLogger("paceline")


@dataclass(slots=True)
class PlacedPool:
    """The driver's handle of a `NodePool`: the workers of a node, or some workers of a lost node."""

    key: int
    node: Node
    bundle: int
    """Index of the node that these workers belong to. Differs from that of `node` after their node was lost."""
    shares: list[Share]
    """The workers, with their numbers in the whole run."""
    new: set[int]
    """Workers that have not executed a call since they were started."""
    tokens: dict[str, Hashable] = field(default_factory=dict)
    """Tokens of the loads that the pool has (`dispatch`)."""
    joint_begun: bool = False
    """Whether the pool has started the current call to all workers."""
    joint_call: Any = None
    """Reference to the reply to that call, while it is pending."""
    results_call: Any = None
    """Reference to the replies of posted calls, while the pool waits for some."""

    @property
    def first(self) -> int:
        """Number of its first worker."""
        return self.shares[0].worker

    @property
    def name(self) -> str:
        """Name of the pool in error texts and logs."""
        return self.node.name if self.bundle == self.node.bundle else f"{self.node.name}, in place of {self.bundle}"

    def share(self, worker: int) -> Share:
        """Return the groups of one of its workers."""
        return self.shares[worker - self.first]


class Placement:
    """All pools of a run, and the workers that were lost."""

    def __init__(
        self,
        cluster: RayCluster,
        groups: int,
        transfer: Any,
        setup: Callable[..., NodePoolSetup],
        *,
        start_timeout_s: float,
        step_timeout_s: float,
        on_node_loss: OnNodeLoss,
    ) -> None:
        """Number the workers; `launch` starts them.

        Args:
            cluster: The nodes.
            groups: Number of groups, which are divided among all workers.
            transfer: A reference to the pickled `Transfer`.
            setup: Returns the settings of a pool; called with `first_group`, `groups` and `workers`.
            start_timeout_s: How long a node may take to start.
            step_timeout_s: How long a node may leave a ping unanswered.
            on_node_loss: Whether other nodes take over the workers of a lost node, or the driver waits for a new node.
        """
        self._cluster, self._transfer, self._setup = cluster, transfer, setup
        self._start_s, self._step_s, self._on_loss = start_timeout_s, step_timeout_s, on_node_loss
        self.shares = shares(groups, cluster.nodes * cluster.workers)
        self.pool_of: list[PlacedPool | None] = [None] * len(self.shares)
        """[workers] the pool of each worker; None if it was lost with its node."""
        self.lost: dict[int, str] = {}
        """Workers that were lost and are not replaced yet, with the error text."""
        self._keys = itertools.count()
        self._nodes: dict[int, Node] = {}  # by bundle
        self._starting: dict[int, Node] = {}  # replacements of lost nodes, by bundle, until they are ready
        self._pings: dict[int, tuple[Any, float]] = {}
        self._looked = perf_counter()

    def launch(self) -> None:
        """Start an actor and a pool for every bundle; blocks until all are ready.

        Raises:
            WorkerError: A node cannot be started.
        """
        starting = [self._cluster.start(bundle) for bundle in range(self._cluster.nodes)]
        self._nodes = {node.bundle: node for node in starting}
        deadline = perf_counter() + self._start_s
        for node in starting:
            if not self._cluster.is_ready(node, max(0.0, deadline - perf_counter())):
                raise WorkerError(
                    f"{node.name}: cannot be used ({self._start_s:g} s were allowed). Is paceline installed there? If "
                    f"it is only slow, raise --start-timeout-s.{node.trouble}"
                )
        self._open([(node, node.bundle, self._of(node.bundle)) for node in starting])
        for pool in self.pools:
            pool.new.clear()
        self.raise_lost()

    @property
    def pools(self) -> list[PlacedPool]:
        """All pools, in the order of their workers."""
        return list({pool.key: pool for pool in self.pool_of if pool is not None}.values())

    def waits(self, pool: PlacedPool) -> bool:
        """Return whether some of the pool's workers are lost, or new and without their first call."""
        return any(share.worker in self.lost or share.worker in pool.new for share in pool.shares)

    def raise_lost(self) -> None:
        """Raise WorkerDied if a worker is lost and not replaced yet."""
        if self.lost:
            worker = min(self.lost)
            raise WorkerDied(self.lost[worker], worker)

    def place(self, worker: int) -> PlacedPool:
        """Open pools for a worker that lost its node, and for its neighbours in number; returns the worker's pool.

        Raises:
            WorkerDied: The new node was lost as well.
            WorkerError: There is no node left.
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

    def move_back(self) -> None:
        """Move workers back to their own node after Ray has replaced it: they count as lost, and are then respawned."""
        moved = {pool.bundle for pool in self.pools if pool.bundle != pool.node.bundle}
        if not moved or perf_counter() - self._looked < LOOK_S:
            return
        self._looked = perf_counter()
        for bundle in moved:
            starting, placed = self._starting.get(bundle), self._cluster.placed(bundle)
            if placed and starting is None:
                self._starting[bundle] = self._cluster.start(bundle)
            elif starting is not None and not placed:
                self._cluster.kill(self._starting.pop(bundle))
            elif starting is not None and self._cluster.is_ready(starting, 0.0):
                self._nodes[bundle] = self._starting.pop(bundle)
                for pool in [pool for pool in self.pools if pool.bundle == bundle]:
                    pool.node.actor.shut.remote(pool.key)
                    self._abandon(pool, f"moves to {starting.name}, which has joined.")

    def await_answer(self, pool: PlacedPool, reference: Any) -> PoolReply | None:
        """Block until a reference is available or its node is lost; see `answer`."""
        while not self.wait([reference], POLL_S, [pool.node]):
            pass
        return self.answer(pool, reference)

    def answer(self, pool: PlacedPool, reference: Any) -> PoolReply | None:
        """Return the reply behind a reference; None if the node is lost or one of its workers died.

        Raises:
            WorkerError: The reply reports an error.
        """
        reply: PoolReply | None = self._get(pool, reference)
        return reply if reply is not None and self._accept(pool, reply) else None

    def results(self, pool: PlacedPool, reference: Any) -> list[PoolReply]:
        """Return the replies to posted calls behind a reference, without those that report a death.

        Raises:
            WorkerError: A reply reports an error.
        """
        results: list[PoolReply] = self._get(pool, reference) or []
        return [reply for reply in results if self._accept(pool, reply)]

    def wait(self, references: list[Any], timeout_s: float, nodes: Sequence[Node]) -> list[Any]:
        """Block until a reference is available, or the timeout; returns all that are.

        If none is, the nodes are pinged: a node that does not answer a ping in time counts as lost.
        """
        ready = self._cluster.ready(references, timeout_s) if references else []
        for node in [] if ready else nodes:
            ping, since = self._pings.get(id(node), (None, 0.0))
            silent_s = perf_counter() - since
            if ping is None or (silent_s > POLL_S and self._cluster.ready([ping], 0.0)):
                ping = node.actor.ping.options(concurrency_group="ping").remote()
                self._pings[id(node)] = ping, perf_counter()
            elif silent_s > self._step_s:
                # The machine or the network hangs: other nodes take over.
                self._lose(node, TimeoutError(f"no answer for {self._step_s:g} s"))
        return ready

    def close(self) -> None:
        """End all nodes, and release the cluster."""
        for node in self._starting.values():
            self._cluster.kill(node)
        self._cluster.close(list(self._nodes.values()))

    def _of(self, bundle: int) -> list[Share]:
        """Return the workers that belong to a bundle."""
        each = self._cluster.workers
        return self.shares[bundle * each : (bundle + 1) * each]

    def _open(self, wanted: Sequence[tuple[Node, int, list[Share]]]) -> None:
        """Start several pools at the same time; blocks until all have answered."""
        opening = []
        for node, bundle, mine in wanted:
            pool = PlacedPool(next(self._keys), node, bundle, mine, new={share.worker for share in mine})
            groups = sum(share.groups for share in mine)
            setup = self._setup(first_group=mine[0].first_group, groups=groups, workers=len(mine))
            opening.append((pool, node.actor.open.remote(pool.key, self._transfer, setup)))
        for pool, reference in opening:
            for share in pool.shares:
                self.pool_of[share.worker] = pool
            self.await_answer(pool, reference)

    def _node(self, bundle: int) -> Node | None:
        """Return the node of a bundle, restarted if necessary; None if the other nodes shall take over."""
        if bundle in self._nodes:
            return self._nodes[bundle]
        began, warned = perf_counter(), False
        while True:
            if self._cluster.placed(bundle) and (node := self._start(bundle)) is not None:
                self._nodes[bundle] = node
                return node
            waited_s = perf_counter() - began
            if self._on_loss == "continue":
                if self._nodes:
                    return None
                if waited_s > self._start_s:
                    raise WorkerError(f"nodes: none is left, and none joined in {self._start_s:g} s. See `ray status`.")
            if not warned:
                LOG.warning("node %d is lost: waiting until the cluster has another node with enough free CPUs", bundle)
                warned = True
            time.sleep(POLL_S)

    def _start(self, bundle: int) -> Node | None:
        """Start an actor in a bundle and block until it is ready; None if the bundle's node is lost meanwhile."""
        node = self._starting.pop(bundle, None) or self._cluster.start(bundle)
        deadline = perf_counter() + self._start_s
        while perf_counter() < deadline and self._cluster.placed(bundle):
            if self._cluster.is_ready(node, POLL_S):
                return node
        self._cluster.kill(node)
        return None

    def _abandon(self, pool: PlacedPool, why: str) -> None:
        """Mark the workers of a pool as lost."""
        for share in pool.shares:
            if self.pool_of[share.worker] is pool:
                self.pool_of[share.worker] = None
                self.lost[share.worker] = f"worker {share.worker}: {why}"

    def _lose(self, node: Node, error: Exception) -> None:
        """Mark a node as lost, and all workers on it."""
        if self._nodes.get(node.bundle) is node:
            del self._nodes[node.bundle]
        self._pings.pop(id(node), None)
        self._cluster.kill(node)
        for pool in [pool for pool in self.pools if pool.node is node]:
            self._abandon(pool, f"{node.name} was lost ({type(error).__name__}).")

    def _get(self, pool: PlacedPool, reference: Any) -> Any:
        """Return the value of a reference; None if the node is lost."""
        try:
            return self._cluster.get(reference)
        except self._cluster.lost as error:
            self._lose(pool.node, error)
            return None

    def _accept(self, pool: PlacedPool, reply: PoolReply) -> bool:
        """Return whether a reply is a result; note a death, raise an error."""
        match reply.kind:
            case "died":
                self.lost[pool.first + reply.worker] = f"{pool.name}: {reply.value}"
            case "error":
                raise WorkerError(f"{pool.name}: {reply.value}")
        return reply.kind == "ok"


def _between(one: int, other: int) -> range:
    return range(min(one, other), max(one, other) + 1)
