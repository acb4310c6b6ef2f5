"""The actor of a node and its pools."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from typing import Any

import numpy as np
import psutil
import pytest
from tests.jobs import Recorder
from tests.unit.runtime.ray.nodes import packed, setup

from paceline.runtime.ray import node as node_module
from paceline.runtime.ray.node import NodeCall, RayNode, versions


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayNode]:
    monkeypatch.setattr(node_module, "set_title", lambda _title: None)
    made = RayNode()
    yield made
    made.close()


def call(key: int, function: Any, *args: Any, worker: int = 0) -> tuple[NodeCall, Any]:
    return NodeCall(key, ["mode"], function, args, worker), [np.array([0])]


def test_a_node_says_where_it_is_and_which_versions_it_has(node: RayNode) -> None:
    hello = node.hello()
    assert hello["host"] == socket.gethostname()
    assert hello["pid"] == psutil.Process().pid
    assert hello["Python"] == platform.python_version()
    assert hello["paceline"] == versions()["paceline"]


def test_pools_of_one_node_are_told_apart_by_their_keys(node: RayNode) -> None:
    for key, first_group in ((3, 0), (5, 2)):
        opened = node.open(key, packed(), setup(first_group, 2, 1))
        assert opened.kind == "ok"
        assert len(opened.value) == 1
    assert node.do(*call(3, Recorder.share)).value == [(0, 0, 2)]
    assert node.do(*call(5, Recorder.share)).value == [(0, 2, 2)]
    assert node.tell(*call(5, Recorder.echo, "one", worker=0)).value == ("one",)
    before = node.ping()
    node.do(*call(3, Recorder.beat, 2, 0.0))
    assert node.ping() == before + 2
    node.post(*call(5, Recorder.echo, "posted"))
    assert [reply.value for reply in node.results(5, 30.0)] == [("posted",)]


def test_a_pool_that_is_shut_ends_its_workers_and_has_no_results(node: RayNode) -> None:
    pids = node.open(3, packed(), setup(0, 2, 2)).value
    assert all(psutil.pid_exists(pid) for pid in pids)
    node.shut(3)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert node.results(3, 60.0) == [], "at once, for a driver that still waits"
    node.shut(3)  # idempotent


def test_a_pool_that_cannot_be_opened_is_an_error_with_its_text(node: RayNode) -> None:
    opened = node.open(3, b"no pickle", setup(0, 2, 1))
    assert opened.kind == "error"
    assert "Error" in opened.value
    assert node.results(3, 0.0) == []


def test_loads_are_named_in_the_order_in_which_they_are_sent() -> None:
    named: Any = NodeCall(0, ["weights", "mode"], Recorder.share).named([[1], [2]])
    assert named == {"weights": [1], "mode": [2]}


def test_a_checkout_that_is_not_installed_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(node_module, "version", missing)
    assert versions()["paceline"] == "not installed"
