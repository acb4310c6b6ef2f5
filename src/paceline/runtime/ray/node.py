"""What runs on a node of a Ray cluster: the crews that the driver opens there.

One actor per node; usually with one crew. More where it has taken over the groups of a node that was lost.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Hashable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from paceline.runtime.messages import Call as JobCall
from paceline.runtime.ray.node_pool import Loads, NodePool, NodePoolSetup, Said, failure
from paceline.runtime.worker import set_title


class NodeCall(NamedTuple):
    """What is asked of a crew, in one argument: Ray pickles each by itself.

    Loads follow as arguments of their own, so that Ray fetches them.
    """

    key: int
    """Which crew."""
    names: Sequence[tuple[str, Hashable]]
    """Name and token of each load."""
    call: JobCall | None = None
    """A function whose first parameter is the job; None where only loads are sent."""
    args: tuple[Any, ...] = ()
    worker: int = 0
    """Of this crew, where one is asked."""

    @property
    def function(self) -> JobCall:
        """What to execute.

        Raises:
            ValueError: There is nothing to execute.
        """
        if self.call is None:
            raise ValueError("a call to a node names no function. Are versions the same?")
        return self.call

    def named(self, loads: Sequence[Any]) -> Loads:
        """The loads by name, with their tokens."""
        return {name: (token, load) for (name, token), load in zip(self.names, loads, strict=True)}


class RayNode:
    """The actor. Its methods are called one after another, in the order of the driver's calls.

    `hear` and `ping` have threads of their own: they answer whatever the rest is at.
    """

    def __init__(self) -> None:
        self._crews: dict[int, NodePool] = {}

    def hello(self) -> dict[str, Any]:
        """Where this is."""
        set_title("paceline: node")
        return {"host": socket.gethostname(), "pid": os.getpid(), **versions()}

    def ping(self) -> int:
        """A sign of life: moves while workers do."""
        return sum(pool.beats() for pool in self._crews.values())

    def open(self, key: int, transfer: bytes, order: NodePoolSetup) -> Said:
        """Start a crew."""
        try:
            self._crews[key] = NodePool(transfer, order)
        except Exception as error:
            return failure(error)
        return Said("ok", value=self._crews[key].pids())

    def shut(self, key: int) -> None:
        """End a crew."""
        if (pool := self._crews.pop(key, None)) is not None:
            pool.close()

    def do(self, call: NodeCall, *loads: Any) -> Said:
        """`NodePool.do`."""
        return self._crews[call.key].do(call.function, call.args, call.named(loads))

    def finish(self, key: int) -> Said:
        """`NodePool.finish`."""
        return self._crews[key].finish()

    def respawn(self, call: NodeCall, *loads: Any) -> Said:
        """`NodePool.respawn`."""
        return self._crews[call.key].respawn(call.worker, call.function, call.args, call.named(loads))

    def tell(self, call: NodeCall, *loads: Any) -> Said:
        """`NodePool.tell`."""
        return self._crews[call.key].tell(call.worker, call.function, call.args, call.named(loads))

    def post(self, call: NodeCall, *loads: Any) -> None:
        """`NodePool.post`."""
        self._crews[call.key].post(call.worker, call.function, call.args, call.named(loads))

    def renew(self, call: NodeCall, *loads: Any) -> None:
        """`NodePool.renew`."""
        self._crews[call.key].renew(call.named(loads))

    def hear(self, key: int, timeout_s: float) -> list[Said]:
        """`NodePool.hear`."""
        pool = self._crews.get(key)
        return [] if pool is None else pool.hear(timeout_s)

    def close(self) -> None:
        """End all crews."""
        for key in list(self._crews):
            self.shut(key)


def versions() -> dict[str, str]:
    """What has to be the same on all nodes for messages to be understood."""
    try:
        ours = version("paceline")
    except PackageNotFoundError:  # a checkout on the path
        ours = "not installed"
    return {"Python": platform.python_version(), "paceline": ours}
