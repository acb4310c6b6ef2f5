"""Reservation of nodes and CPUs on a Ray cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.errors import ConfigError, WorkerError
from paceline.runtime.ray.cluster import FEW_BYTES, Node, RayCluster, _room
from paceline.runtime.ray.node import versions


def nodes_with(*cpus: float) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": count}} for count in cpus]


@pytest.mark.parametrize(
    ("cpus", "nodes", "workers", "groups", "expected"),
    [
        ((8, 8), None, None, 32, (2, 8)),
        ((8, 4), None, None, 32, (2, 4)),
        ((8, 4), 1, None, 32, (1, 8)),
        ((8, 4), None, 6, 32, (1, 6)),
        ((8, 8, 8), None, 4, 8, (2, 4)),
        ((8, 8), None, None, 8, (2, 4)),
        ((8, 8, 0), 2, 3, 8, (2, 3)),
        ((2,), None, None, 1, (1, 1)),
    ],
)
def test_nodes_and_workers_default_to_what_the_cluster_has(
    cpus: tuple[int, ...], nodes: int | None, workers: int | None, groups: int, expected: tuple[int, int]
) -> None:
    assert _room(nodes_with(*cpus), nodes, workers, groups) == expected


@pytest.mark.parametrize(
    ("cpus", "nodes", "workers", "text"),
    [
        ((8, 8), 3, None, r"nodes=3: the Ray cluster has 2 with 1 CPU\(s\) or more \(its nodes have \[8, 8\]\)"),
        ((8, 8), None, 9, r"nodes=1: the Ray cluster has 0 with 9 CPU"),
        ((0,), None, None, r"has 0 with 1 CPU"),
        ((8, 8), 2, 8, r"nodes\*workers_per_node = 2\*8 = 16: .*groups \(8\)"),
    ],
)
def test_more_nodes_or_workers_than_the_cluster_has_are_refused(
    cpus: tuple[int, ...], nodes: int | None, workers: int | None, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        _room(nodes_with(*cpus), nodes, workers, 8)


class StandIn:
    """The part of the ray package that `RayCluster` uses, for a cluster with some nodes."""

    def __init__(self, *cpus: float, placed_after: int = 0) -> None:
        self.cpus, self.waits_left = cpus, placed_after
        self.calls: list[str] = []
        self.objects: dict[str, Any] = {}
        self.groups: list[tuple[list[dict[str, int]], str]] = []
        self.util = SimpleNamespace(placement_group=self._group, remove_placement_group=lambda _: self._note("removed"))
        self.exceptions = SimpleNamespace(
            RayActorError=KeyError,
            ActorUnschedulableError=KeyError,
            ActorPlacementGroupRemoved=KeyError,
            NodeDiedError=KeyError,
            ObjectLostError=KeyError,
        )

    def _note(self, what: str) -> None:
        self.calls.append(what)

    def _group(self, bundles: list[dict[str, int]], strategy: str) -> StandIn:
        self.groups.append((bundles, strategy))
        return self

    def remote(self, **_: Any) -> Any:
        return lambda actor: actor

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return nodes_with(*self.cpus)

    def wait(self, timeout_or_references: Any, **options: Any) -> Any:
        if isinstance(timeout_or_references, float):  # of a placement group
            self.waits_left -= 1
            return self.waits_left < 0
        found = [one for one in timeout_or_references if one in self.objects]
        return found, [one for one in timeout_or_references if one not in self.objects]

    def get(self, reference: str) -> Any:
        return self.objects[reference]

    def put(self, value: Any) -> str:
        self.objects["stored"] = value
        return "stored"

    def shutdown(self) -> None:
        self._note("shutdown")


def cluster(ray: StandIn, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RayCluster:
    monkeypatch.setattr("paceline.runtime.ray.cluster.require_ray", lambda: ray)
    monkeypatch.setattr("paceline.runtime.ray.cluster.POLL_S", 0.001)
    settings = {"address": "auto", "nodes": 2, "workers_per_node": 3, "groups": 12, **options}
    return RayCluster(**settings)


@pytest.mark.parametrize(("nodes", "strategy"), [(1, "PACK"), (2, "STRICT_SPREAD")])
def test_the_cpus_of_each_node_are_reserved_and_released(
    nodes: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = StandIn(4, 4, placed_after=3)
    made = cluster(ray, monkeypatch, nodes=nodes)
    assert ray.groups == [([{"CPU": 3}] * nodes, strategy)]
    made.close()
    made.close()
    assert ray.calls == ["removed"], "once, and a Ray that others started goes on"


def test_cpus_that_do_not_become_free_are_an_error_and_reserve_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandIn(4, 4, placed_after=10**9)
    with pytest.raises(ConfigError, match=r"workers_per_node=3: .* did not become free on 2 node\(s\).* in 0\.01 s"):
        cluster(ray, monkeypatch, timeout_s=0.01)
    assert ray.calls == ["removed"]


def test_a_node_with_other_versions_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandIn(4, 4)
    made = cluster(ray, monkeypatch)
    node = Node(1, None, "hello")
    assert not made.is_ready(node, 0.0), "it has not answered yet"
    ray.objects["hello"] = {"host": "far", **versions()}
    assert made.is_ready(node, 0.0)
    assert node.name == "node 1 (far)"
    ray.objects["hello"] = {"host": "far", **versions(), "Python": "2.7.18"}
    with pytest.raises(WorkerError, match=r"node 1 \(far\): has Python 2\.7\.18, but the driver has 3"):
        made.is_ready(node, 0.0)


def test_a_node_that_died_while_starting_leaves_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandIn(4, 4)
    made = cluster(ray, monkeypatch)
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    node = Node(0, None, "hello")
    assert not made.is_ready(node, 0.0)
    assert "Ray says: 'hello'" in node.trouble


def test_small_arrays_are_sent_as_copies_and_large_ones_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandIn(4, 4)
    made = cluster(ray, monkeypatch)
    small = np.zeros(3)
    copies = made.put_parts([small])
    small[:] = 1.0
    assert copies[0].tolist() == [0.0, 0.0, 0.0]
    assert made.put_parts([np.zeros(FEW_BYTES)]) == "stored"
    assert made.get("stored")[0].shape == (FEW_BYTES,)
