"""What driver and worker send each other: one small pickle each way, a call or its result.

Without the pickler of `Connection.send`, which can send open files, and takes twice as long to be ready for that.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeAlias

import cloudpickle

Call: TypeAlias = Callable[..., object]
"""A function whose first parameter is the worker's job. It is pickled as its module and qualified name."""
MessageKind: TypeAlias = Literal["ok", "error", "exit"]
"""How a call ended: with a result; with an error; or because something in the env meant to end the process."""


def packed_call(call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """A call as it travels to a worker, for `send_bytes`."""
    if call.__module__ == "__main__":  # of a script or a notebook: a worker may have another main module, or none
        by_value: bytes = cloudpickle.dumps((call, args, kwargs), pickle.HIGHEST_PROTOCOL)
        return by_value
    return pickle.dumps((call, args, kwargs), pickle.HIGHEST_PROTOCOL)


CLOSE = pickle.dumps(None, pickle.HIGHEST_PROTOCOL)
"""Ends a worker."""


def hear_call(conn: Connection) -> tuple[Call, tuple[Any, ...], dict[str, Any]] | None:
    """What the driver wants next; None to end. Blocks until there is something.

    Raises:
        EOFError: The driver is gone.
    """
    call: tuple[Call, tuple[Any, ...], dict[str, Any]] | None = pickle.loads(conn.recv_bytes())
    return call


def packed_result(kind: MessageKind, value: object) -> bytes:
    """How a call ended, as it travels to the driver, for `send_bytes`."""
    return pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)


def hear_result(conn: Connection) -> tuple[MessageKind, Any]:
    """How a worker's call ended. Blocks until it has.

    Raises:
        EOFError: The worker is gone.
    """
    kind, value = pickle.loads(conn.recv_bytes())
    return kind, value
