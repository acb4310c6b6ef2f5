"""Room on the nodes of a Ray cluster: a placement group, and an actor on each node.

    driver ── placement group ── bundle 0: W CPUs of one node ── actor
                              ── bundle 1: W CPUs of another ── actor

The group keeps its place: when a node is lost, Ray gives its bundle to the next node that has room for it.
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
"""Ray itself sends arguments of up to 100 kB with the call."""


@dataclass(slots=True)
class Node:
    """The driver's end of an actor."""

    bundle: int
    actor: Any
    hello: Any
    """What it says first: a reference."""
    about: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""
    """Why it did not come."""

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"node {self.bundle}" + (f" ({self.about['host']})" if self.about else "")


class RayCluster:
    """Room for W workers on each of N nodes. Owns the connection where it made it: close it."""

    def __init__(
        self,
        *,
        address: str | None,
        nodes: int | None,
        workers_per_node: int | None,
        groups: int,
        timeout_s: float = 60.0,
    ) -> None:
        """Connect, or start a Ray of this machine, and reserve the CPUs.

        Args:
            address: `auto`, `HOST:PORT`, or None to start one here.
            nodes: How many; None for all that there are.
            workers_per_node: CPUs to take on each; None for as many as the smallest of them has.
            groups: Groups of the run: the most workers there can be.
            timeout_s: How long CPUs may take to become free.

        Raises:
            ConfigError: There is no such cluster, or it has no such room.
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
        # Not in the order of calls: what only listens must not wait for what works.
        self._actors = self._ray.remote(concurrency_groups={"hear": 1, "ping": 1})(RayNode)

    def start(self, bundle: int) -> Node:
        """An actor in a bundle; may not be there yet."""
        strategies = self._ray.util.scheduling_strategies
        where = strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        actor = self._actors.options(num_cpus=self.workers, scheduling_strategy=where, max_restarts=0).remote()
        return Node(bundle, actor, actor.hello.remote())

    def greet(self, node: Node, timeout_s: float) -> bool:
        """Whether it is there by then.

        Raises:
            WorkerError: It cannot work with this driver.
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
        """What is raised when an actor, or its node, is gone."""
        found = self._ray.exceptions
        return (
            found.RayActorError,
            found.ActorUnschedulableError,
            found.ActorPlacementGroupRemoved,
            found.NodeDiedError,
            found.ObjectLostError,
        )

    def put(self, value: Any) -> Any:
        """A value for all nodes: a reference to it, which calls take in its place."""
        return self._ray.put(value)

    def put_parts(self, parts: Sequence[NDArray[Any]]) -> Any:
        """The same for arrays, as they are now; few bytes go along with each call: quicker than having them fetched."""
        few = sum(part.nbytes for part in parts) <= FEW_BYTES
        return [part.copy() for part in parts] if few else self._ray.put(list(parts))

    def get(self, reference: Any) -> Any:
        """What it stands for; waits."""
        return self._ray.get(reference)

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those that are there by then: at least one, or none."""
        found, _ = self._ray.wait(list(references), timeout=timeout_s)
        if found and len(references) > 1:
            found, _ = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        return list(found)

    def kill(self, node: Node) -> None:
        """End an actor at once."""
        with suppress(Exception):
            self._ray.kill(node.actor)

    def close(self, nodes: Sequence[Node] = ()) -> None:
        """Let these end, give back the CPUs, and leave. Idempotent."""
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
    """Nodes, and workers on each."""
    cpus = sorted((int(node["Resources"].get("CPU", 0)) for node in alive), reverse=True)
    fitting = [count for count in cpus if count >= (workers or 1)]
    wanted = len(fitting) if nodes is None else nodes
    if nodes is None:
        wanted = max(1, min(wanted, groups // (workers or 1)))
    if wanted > len(fitting) or not fitting:
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
