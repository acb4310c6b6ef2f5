"""The Ray actor on each node, which holds the worker pools that the driver opens there.

There is one actor per node, usually with one pool. It has more pools after it took over workers of a lost node.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from paceline.runtime.messages import Call as JobCall
from paceline.runtime.ray.node_pool import Loads, NodePool, NodePoolSetup, PoolReply, failure
from paceline.runtime.worker import set_title


class NodeCall(NamedTuple):
    """A call to a pool, as one argument, because Ray pickles every argument separately.

    The loads are further arguments, so that Ray fetches those that are references.
    """

    key: int
    """Key of the pool."""
    names: Sequence[str]
    """Name of each load."""
    function: JobCall
    """A function whose first parameter is the job."""
    args: tuple[Any, ...] = ()
    worker: int = 0
    """Index in the pool, for a call to one worker."""

    def named(self, loads: Sequence[Any]) -> Loads:
        """Return the loads by name."""
        return dict(zip(self.names, loads, strict=True))


class RayNode:
    """The actor. Ray calls its methods one after another, in the order of the driver's calls.

    `results` and `ping` run in threads of their own, so they answer while another method runs.
    """

    def __init__(self) -> None:
        self._pools: dict[int, NodePool] = {}

    def hello(self) -> dict[str, Any]:
        """Return host, process id and versions."""
        set_title("paceline: node")
        return {"host": socket.gethostname(), "pid": os.getpid(), **versions()}

    def ping(self) -> int:
        """Return a number that changes while workers send heartbeats."""
        return sum(pool.beats() for pool in self._pools.values())

    def open(self, key: int, transfer: bytes, setup: NodePoolSetup) -> PoolReply:
        """Start a pool; returns the process ids of its workers."""
        try:
            self._pools[key] = NodePool(transfer, setup)
        except Exception as error:
            return failure(error)
        return PoolReply("ok", value=self._pools[key].pids())

    def shut(self, key: int) -> None:
        """Close a pool."""
        if (pool := self._pools.pop(key, None)) is not None:
            pool.close()

    def do(self, call: NodeCall, *loads: Any) -> PoolReply:
        """`NodePool.do`."""
        return self._pools[call.key].do(call.function, call.args, call.named(loads))

    def finish(self, key: int) -> PoolReply:
        """`NodePool.finish`."""
        return self._pools[key].finish()

    def respawn(self, call: NodeCall, *loads: Any) -> PoolReply:
        """`NodePool.respawn`."""
        return self._pools[call.key].respawn(call.worker, call.function, call.args, call.named(loads))

    def tell(self, call: NodeCall, *loads: Any) -> PoolReply:
        """`NodePool.tell`."""
        return self._pools[call.key].tell(call.worker, call.function, call.args, call.named(loads))

    def post(self, call: NodeCall, *loads: Any) -> None:
        """`NodePool.post`."""
        self._pools[call.key].post(call.worker, call.function, call.args, call.named(loads))

    def renew(self, key: int, names: Sequence[str], *loads: Any) -> None:
        """`NodePool.renew`."""
        self._pools[key].renew(dict(zip(names, loads, strict=True)))

    def results(self, key: int, timeout_s: float) -> list[PoolReply]:
        """`NodePool.results`."""
        pool = self._pools.get(key)
        return [] if pool is None else pool.results(timeout_s)

    def close(self) -> None:
        """Close all pools."""
        for key in list(self._pools):
            self.shut(key)


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes, because calls are pickled."""
    try:
        ours = version("paceline")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        ours = "not installed"
    return {"Python": platform.python_version(), "paceline": ours}
