"""Reserves CPUs on the nodes of a Ray cluster (a placement group), and starts an actor on each node.

    driver ── placement group ── bundle 0: W CPUs of one node ── actor
                              ── bundle 1: W CPUs of another ── actor

The placement group outlives a lost node: Ray moves the node's bundle to the next node that has enough free CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from paceline.errors import ConfigError, WorkerError
from paceline.runtime.ray.connection import connect, require_ray
from paceline.runtime.ray.node import RayNode, versions

CLOSE_TIMEOUT_S = 5.0
POLL_S = 0.5
FEW_BYTES = 64 * 1024
"""Arrays of up to this size are sent with each call. (Ray does so for arguments of up to 100 kB.)"""


@dataclass(slots=True)
class Node:
    """The driver's handle of one node: its actor, and what is known of it."""

    bundle: int
    actor: Any
    hello: Any
    """Reference to the result of `RayNode.hello`."""
    about: dict[str, Any] = field(default_factory=dict)
    """That result, once it has arrived: host, process id, versions."""
    trouble: str = ""
    """Why the actor could not be started, as a sentence for the error."""

    @property
    def name(self) -> str:
        """Name of the node in error texts and logs."""
        return f"node {self.bundle}" + (f" ({self.about['host']})" if self.about else "")


class RayCluster:
    """Reserved CPUs for W workers on each of N nodes. Call `close`; it ends a Ray that this object has started."""

    def __init__(
        self,
        *,
        address: str | None,
        nodes: int | None,
        workers_per_node: int | None,
        groups: int,
        timeout_s: float = 60.0,
    ) -> None:
        """Connect to a cluster, or start Ray on this machine, and reserve the CPUs. Blocks until they are free.

        Args:
            address: `auto`, `HOST:PORT`, or None to start Ray on this machine.
            nodes: Number of nodes; None for all.
            workers_per_node: CPUs to reserve on each node; None for as many as the smallest node has.
            groups: Number of groups of the run, which is the largest number of workers.
            timeout_s: How long to wait for free CPUs.

        Raises:
            ConfigError: There is no such cluster, or it has not enough CPUs.
        """
        self._ray = require_ray()
        self._group: Any = None
        self._owned = not self._ray.is_initialized()
        if self._owned:
            connect(self._ray, address, workers_per_node)
        try:
            self.nodes, self.workers = _room(self._alive(), nodes, workers_per_node, groups)
            self._group = self._reserve(timeout_s)
        except BaseException:
            self.close()
            raise
        # Groups of their own, because `results` and `ping` must not wait for calls that are running.
        self._actors = self._ray.remote(concurrency_groups={"results": 1, "ping": 1})(RayNode)

    def start(self, bundle: int) -> Node:
        """Start an actor in a bundle. Does not block; see `is_ready`."""
        strategies = self._ray.util.scheduling_strategies
        where = strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        actor = self._actors.options(num_cpus=self.workers, scheduling_strategy=where, max_restarts=0).remote()
        return Node(bundle, actor, actor.hello.remote())

    def is_ready(self, node: Node, timeout_s: float) -> bool:
        """Block until the node's actor has started, or the timeout; returns whether it has.

        Raises:
            WorkerError: The node has another version of Python or Paceline than the driver.
        """
        if not self._ray.wait([node.hello], timeout=timeout_s)[0]:
            return False
        try:
            node.about = self._ray.get(node.hello)
        except self.lost as error:
            node.trouble = f" Ray says: {error}"
            return False
        for what, ours in versions().items():
            if node.about[what] != ours:
                raise WorkerError(
                    f"{node.name}: has {what} {node.about[what]}, but the driver has {ours}. Use the same on all nodes."
                )
        return True

    def placed(self, bundle: int) -> bool:
        """Whether a living node holds the bundle."""
        table = self._ray.util.placement_group_table(self._group)
        alive = {node["NodeID"] for node in self._alive()}
        return table["state"] == "CREATED" and table["bundles_to_node_id"][bundle] in alive

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        """Ray's exceptions for an actor or a node that is lost."""
        found = self._ray.exceptions
        return (
            found.RayActorError,
            found.ActorUnschedulableError,
            found.ActorPlacementGroupRemoved,
            found.NodeDiedError,
            found.ObjectLostError,
        )

    def put(self, value: Any) -> Any:
        """Store a value in the object store; returns a reference that can be passed to calls instead of it."""
        return self._ray.put(value)

    def put_parts(self, parts: Sequence[NDArray[Any]]) -> Any:
        """Store copies of some arrays; returns a reference, or the copies if they are small (see `FEW_BYTES`)."""
        few = sum(part.nbytes for part in parts) <= FEW_BYTES
        return [part.copy() for part in parts] if few else self._ray.put(list(parts))

    def get(self, reference: Any) -> Any:
        """Return the value of a reference; blocks until it is available."""
        return self._ray.get(reference)

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Block until one reference is available, or the timeout; returns all that are."""
        found, _ = self._ray.wait(list(references), timeout=timeout_s)
        if found and len(references) > 1:
            found, _ = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        return list(found)

    def kill(self, node: Node) -> None:
        """Kill the actor of a node."""
        with suppress(Exception):
            self._ray.kill(node.actor)

    def close(self, nodes: Sequence[Node] = ()) -> None:
        """Close these nodes, release the CPUs, and disconnect. Idempotent."""
        if self._ray.is_initialized():
            with suppress(Exception):
                ending = [node.actor.close.remote() for node in nodes]
                if ending:
                    self._ray.wait(ending, num_returns=len(ending), timeout=CLOSE_TIMEOUT_S)
            for node in nodes:
                self.kill(node)
            if self._group is not None:
                with suppress(Exception):
                    self._ray.util.remove_placement_group(self._group)
            if self._owned:
                self._ray.shutdown()
        self._group, self._owned = None, False

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _reserve(self, timeout_s: float) -> Any:
        strategy = "STRICT_SPREAD" if self.nodes > 1 else "PACK"
        group = self._ray.util.placement_group([{"CPU": self.workers}] * self.nodes, strategy=strategy)
        began = perf_counter()
        while not group.wait(POLL_S):
            if perf_counter() - began > timeout_s:
                self._ray.util.remove_placement_group(group)
                raise ConfigError(
                    f"workers_per_node={self.workers}: that many CPUs did not become free on {self.nodes} node(s) of "
                    f"the Ray cluster in {timeout_s:g} s. Check `ray status`, or lower --workers-per-node."
                )
        return group


def _room(alive: Sequence[dict[str, Any]], nodes: int | None, workers: int | None, groups: int) -> tuple[int, int]:
    """Return the number of nodes, and the number of workers on each."""
    cpus = sorted((int(node["Resources"].get("CPU", 0)) for node in alive), reverse=True)
    fitting = [count for count in cpus if count >= (workers or 1)]
    wanted = max(1, min(len(fitting), groups // (workers or 1))) if nodes is None else nodes
    if wanted > len(fitting):
        raise ConfigError(
            f"nodes={wanted}: the Ray cluster has {len(fitting)} with {workers or 1} CPU(s) or more "
            f"(its nodes have {cpus}). Start more, or lower --nodes or --workers-per-node."
        )
    each = workers or max(1, min(fitting[wanted - 1], groups // wanted))
    if wanted * each > groups:
        raise ConfigError(
            f"nodes*workers_per_node = {wanted}*{each} = {wanted * each}: must be at most the number of env groups "
            f"({groups}). Lower them, or --group-size."
        )
    return wanted, each
