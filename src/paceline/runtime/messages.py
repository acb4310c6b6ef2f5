"""Messages between driver and worker: one small pickle each way, a call or how it ended.

Plain `pickle` instead of `Connection.send`, whose pickler can also send open files and therefore takes twice as long.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeAlias

import cloudpickle

from paceline.errors import PacelineError

Call: TypeAlias = Callable[..., object]
"""A function whose first parameter is the worker's job. It is pickled as its module and qualified name."""
MessageKind: TypeAlias = Literal["ok", "error", "exit"]
"""How a call ended: a result (ok), an exception (error), or with SystemExit (exit; an env called sys.exit)."""


def packed_call(call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Return a call as bytes, for `send_bytes` to a worker."""
    if call.__module__ == "__main__":  # in a script or notebook: the worker has another main module, so send the code
        by_value: bytes = cloudpickle.dumps((call, args, kwargs), pickle.HIGHEST_PROTOCOL)
        return by_value
    return pickle.dumps((call, args, kwargs), pickle.HIGHEST_PROTOCOL)


CLOSE = pickle.dumps(None, pickle.HIGHEST_PROTOCOL)
"""The message that ends a worker."""


def receive_call(conn: Connection) -> tuple[Call, tuple[Any, ...], dict[str, Any]] | None:
    """Return the next call; None if the worker shall end. Blocks.

    Raises:
        EOFError: The driver has ended.
    """
    call: tuple[Call, tuple[Any, ...], dict[str, Any]] | None = pickle.loads(conn.recv_bytes())
    return call


def packed_result(kind: MessageKind, value: object) -> bytes:
    """Return how a call ended as bytes, for `send_bytes` to the driver."""
    return pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)


def error_text(error: BaseException) -> str:
    """Return an error as text: our own errors as they are, others with the name of their class."""
    try:
        return str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (its text could not be made)"


def packed_exception(error: BaseException | None) -> bytes:
    """Return an exception as bytes; empty if it cannot be sent: its class cannot be imported or rebuilt from its args.

    The traceback is not part of it. cloudpickle sends classes of the user's script so that the driver gets its own
    class back, which `except` then matches.
    """
    if not isinstance(error, Exception):
        return b""
    try:
        packed: bytes = cloudpickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        cloudpickle.loads(packed)
    except Exception:
        return b""
    return packed


def unpacked_exception(packed: bytes) -> Exception | None:
    """Return the exception of `packed_exception`; None if there is none, or if this process cannot rebuild it."""
    try:
        error = pickle.loads(packed) if packed else None
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def receive_result(conn: Connection) -> tuple[MessageKind, Any]:
    """Return how a worker's next call ended. Blocks until it has.

    Raises:
        EOFError: The worker has ended.
    """
    kind, value = pickle.loads(conn.recv_bytes())
    return kind, value
