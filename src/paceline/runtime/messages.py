"""What driver and worker say to each other: two things in one small pickle, a command and its arguments or an answer.

Without the pickler of `Connection.send`, which can send open files, and takes twice as long to be ready for that.
"""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any


def packed(what: str, value: Any) -> bytes:
    """A message as it travels, for `send_bytes`."""
    return pickle.dumps((what, value), pickle.HIGHEST_PROTOCOL)


def hear(conn: Connection) -> tuple[str, Any]:
    """What the other end said. Blocks until it has said something.

    Raises:
        EOFError: It is gone.
    """
    what, value = pickle.loads(conn.recv_bytes())
    return what, value
