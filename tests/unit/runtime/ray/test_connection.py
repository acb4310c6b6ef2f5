"""Connecting to a Ray cluster, with a stand-in for the ray package."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.cli import main
from paceline.errors import ConfigError, MissingExtra
from paceline.runtime.ray import connection
from paceline.runtime.ray.connection import LOOPBACK, connect, require_ray

VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class StandIn:
    """The part of the ray package that `connect` uses; records how it is started."""

    def __init__(self, error: Exception | None = None, address: str = LOOPBACK) -> None:
        self._private = SimpleNamespace(ray_constants=SimpleNamespace(ENABLE_RAY_CLUSTER=True))
        self.util = SimpleNamespace(get_node_ip_address=lambda: address)
        self.error = error
        self.started: list[dict[str, Any]] = []
        self.inside: list[tuple[bool, str | None]] = []

    def init(self, **options: Any) -> None:
        self.inside.append((self._private.ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(VARIABLE)))
        self.started.append(options)
        if self.error is not None:
            raise self.error


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"paceline\[ray\]"):
        require_ray()


@pytest.mark.parametrize("before", [None, "1"])
def test_a_local_ray_listens_on_the_loopback_address_only(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.system.threads.core_budget", lambda: 3)
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray = StandIn()
    connect(ray, None, 2)
    connect(ray, None, 5)
    assert [(one["address"], one["_node_ip_address"]) for one in ray.started] == [("local", LOOPBACK)] * 2
    assert [one["num_cpus"] for one in ray.started] == [3, 5], "the cores, or as many as workers"
    assert ray.inside == [(False, "0")] * 2
    assert ray._private.ray_constants.ENABLE_RAY_CLUSTER is True
    assert os.environ.get(VARIABLE) == before


def test_a_local_ray_that_listens_elsewhere_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    connect(StandIn(address="10.0.0.7"), None, 1)
    assert "ray: listens on 10.0.0.7" in caplog.text


def test_an_address_where_nothing_listens_is_refused_before_ray_tries_for_minutes() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
    ray = StandIn()
    for address in (f"{LOOPBACK}:{port}", f"{LOOPBACK}:99999"):
        with pytest.raises(ConfigError, match=rf"ray_address='{address}': no answer .*ray start --head"):
            connect(ray, address, 1)
    assert not ray.started


def test_an_address_where_something_listens_is_joined() -> None:
    ray = StandIn()
    with socket.create_server((LOOPBACK, 0)) as server:
        address = f"{LOOPBACK}:{server.getsockname()[1]}"
        connect(ray, address, 1)
    assert ray.started[0]["address"] == address
    assert "num_cpus" not in ray.started[0], "a cluster that runs has its own"


@pytest.mark.parametrize("error", [ConnectionError("refused"), RuntimeError("no node"), ValueError("odd")])
def test_a_cluster_that_cannot_be_joined_is_an_error_with_advice(error: Exception) -> None:
    with pytest.raises(ConfigError, match=rf"ray_address='auto': .*{error}.*ray start --head"):
        connect(StandIn(error), "auto", 1)


def test_without_the_extra_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "paceline.runtime.ray.connection.find_spec", lambda name: None if name == "ray" else found(name)
    )
    code = main(["train", "ppo", "--env", "CartPole-v1", "--runtime", "ray", "--output-dir", str(tmp_path / "run")])
    assert code == 2
    assert "--runtime ray needs an extra: pip install 'paceline[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
