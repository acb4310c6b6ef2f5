"""The way into a Ray cluster: one that is there to be joined, or one of this machine for this run alone."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from paceline.errors import ConfigError, MissingExtra
from paceline.system import threads

CONNECT_TIMEOUT_S = 5.0
LOOPBACK = "127.0.0.1"
LOCAL_STORE_BYTES = 200 * 2**20
"""Object store of a Ray that is started here: nothing stays in it for longer than a rollout."""
LOG = logging.getLogger("paceline")


def require_ray() -> Any:
    """The package.

    Raises:
        MissingExtra: It is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtra("--runtime ray", "ray")
    import ray

    return ray


def connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start a Ray of this machine.

    Args:
        ray: The package.
        address: `auto`, `HOST:PORT`, or None to start one here, for this run alone.
        workers: What one that is started here must have room for.

    Raises:
        ConfigError: There is no such cluster.
    """
    quietly: dict[str, Any] = {"logging_level": logging.ERROR, "namespace": "paceline"}
    if address is None:
        # Of this machine and for this run alone. CPUs are counted, not pinned.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with _loopback(ray):
            ray.init(
                address="local",
                num_cpus=max(threads.core_budget(), workers or 1),
                include_dashboard=False,
                object_store_memory=LOCAL_STORE_BYTES,
                _node_ip_address=LOOPBACK,
                **quietly,
            )
        if (address := ray.util.get_node_ip_address()) != LOOPBACK:
            LOG.warning(
                "ray: listens on %s, and perhaps on all addresses of this machine; a firewall may help", address
            )
        return
    if address != "auto":
        _knock(address)
    try:
        ray.init(address=address, **quietly)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"ray_address={address!r}: no Ray cluster could be joined there ({error}). The driver has to run on one "
            "of its nodes: start one with `ray start --head` (or `ray start --address HEAD:6379`), or leave the "
            "address out."
        ) from error


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:
    """Have a Ray that is started inside listen on the loopback address.

    Ray takes that address for a mistake and listens on all, except where it thinks that clusters are not supported.
    """
    constants, name = ray._private.ray_constants, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    supported, variable = constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"  # here, and in what it starts
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = supported
        if variable is None:
            del os.environ[name]
        else:
            os.environ[name] = variable


def _knock(address: str) -> None:
    """Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"ray_address={address!r}: nobody answers there ({error}). Start the cluster with `ray start --head`, or "
            "leave the address out."
        ) from error
