"""Connects to a running Ray cluster, or starts a local Ray for this run only."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from paceline.errors import ConfigError, MissingExtra
from paceline.runtime.forkserver import environment
from paceline.system import threads

CONNECT_TIMEOUT_S = 5.0
LOOPBACK = "127.0.0.1"
LOCAL_STORE_BYTES = 200 * 2**20
"""Object store of a local Ray. Small, because no object stays in it for longer than a rollout."""
LOG = logging.getLogger("paceline")


def require_ray() -> Any:
    """Import and return the ray package.

    Raises:
        MissingExtra: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtra("--runtime ray", "ray")
    import ray

    return ray


def connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Connect to a cluster, or start a local Ray.

    Args:
        ray: The ray package.
        address: `auto`, `HOST:PORT`, or None to start a local Ray for this run only.
        workers: Number of workers that a local Ray must have CPUs for.

    Raises:
        ConfigError: There is no such cluster.
    """
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "namespace": "paceline"}
    if address is None:
        # Ray only counts CPUs, it does not pin processes to them.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with _loopback(ray):
            ray.init(
                address="local",
                num_cpus=max(threads.core_budget(), workers or 1),
                include_dashboard=False,
                object_store_memory=LOCAL_STORE_BYTES,
                _node_ip_address=LOOPBACK,
                **quiet,
            )
        if (address := ray.util.get_node_ip_address()) != LOOPBACK:
            LOG.warning(
                "ray: listens on %s, and perhaps on all addresses of this machine; a firewall can block them", address
            )
        return
    if address != "auto":
        _check_reachable(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"ray_address={address!r}: no Ray cluster could be joined there ({error}). The driver has to run on one "
            "of its nodes: start one with `ray start --head` (or `ray start --address HEAD:6379`), or leave the "
            "address out."
        ) from error


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:
    """Context in which `ray.init` starts a Ray that listens on the loopback address only.

    Ray replaces a loopback address by one of all interfaces, unless it considers clusters unsupported on the platform.
    """
    constants = ray._private.ray_constants
    supported, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False  # for this process
    try:
        with environment({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}):  # for processes that it starts
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = supported


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at the address: Ray itself would try for minutes.

    Raises:
        ConfigError: The connection failed.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"ray_address={address!r}: no answer ({error}). Start the cluster with `ray start --head`, or "
            "leave the address out."
        ) from error
