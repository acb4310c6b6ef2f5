"""Copies arrays between the arenas of two machines, as one contiguous buffer per message.

    here: views of an arena --pack--> bytes ==network==> bytes --unpack--> views of the arena there

Both sides list the arrays by the same function, in the same order, so that the bytes need no description. A view may
depend on the views before it, whose values have arrived when it is created. So a list of any length can be sent: first
its length, then its entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arena, Field
from paceline.runtime.protocol import J_co, Program, Share

Views = Iterable[NDArray[Any]]
"""Arrays to read from or to write into, created one by one."""
DISAGREE = "arrived, and other ones were expected. Are versions the same?"


class GroupRange(NamedTuple):
    """The contiguous range of groups that a node holds."""

    first_group: int
    groups: int


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """A call that was executed, and its results."""

    command: str
    args: tuple[Any, ...]
    results: Sequence[Any]
    """One result per worker."""


class Transfer(Protocol[J_co]):
    """Defines which arrays driver and workers exchange if they do not share an arena.

    Sent to every node, so cloudpickle must be able to pickle it. A *load* is a named list of arrays that the driver
    sends.
    """

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """Return the fields of the arena of a node with these groups and workers."""

    def program(self, held: GroupRange) -> Program[J_co]:
        """Return the program of that node's workers."""

    def loads(self, command: str) -> Sequence[str]:
        """Return the names of the loads that workers need before this call."""

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """Return a token that changes when the content of a load does; None if the load is sent with every call.

        Args:
            load: Name of the load.
            arena: The driver's arena.
            command: Number of calls to all workers so far.
        """

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Views:
        """List the arrays of a load, on the driver to read from, and on a node to write into.

        Args:
            load: Name of the load.
            arena: The arena of this side.
            held: On a node, the groups that its arena holds; None on the driver.
            pool: On a node, the workers that the call is for.
        """

    def up(self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Views:
        """List the arrays that a call has written, on a node to read from, and on the driver to write into.

        Args:
            call: The call and its results.
            arena: The arena of this side.
            held: On a node, the groups that its arena holds; None on the driver.
            pool: The workers that executed the call, in order; groups have the numbers of the whole run, workers those
                of this arena.
        """

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """Return the arguments of a call without the parts that these workers do not need."""

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """Record in the driver's arena that a call was submitted, as a worker with access to that arena would."""


def pack(views: Views) -> NDArray[np.uint8]:
    """Copy all views into one new buffer."""
    parts, at = list(views), 0
    buffer = np.empty(sum(part.nbytes for part in parts), np.uint8)
    for part in parts:
        _piece(buffer, at, part)[...] = part
        at += part.nbytes
    return buffer


def unpack(buffer: NDArray[np.uint8], views: Views) -> None:
    """Copy a buffer into the views.

    Raises:
        ValueError: Both sides list different arrays.
    """
    at = 0
    for part in views:
        if at + part.nbytes > len(buffer):
            break
        part[...] = _piece(buffer, at, part)
        at += part.nbytes
    else:
        if at == len(buffer):
            return
    raise ValueError(f"transfer: {len(buffer)} bytes {DISAGREE}")


def unload(parts: Sequence[NDArray[Any]], views: Views) -> None:
    """Copy arrays into the views, one by one.

    Raises:
        ValueError: Both sides list different arrays.
    """
    for part, view in zip_longest(parts, views):
        if part is None or view is None or part.shape != view.shape:
            raise ValueError(f"transfer: arrays of {sum(part.nbytes for part in parts)} bytes {DISAGREE}")
        view[...] = part


def _piece(buffer: NDArray[np.uint8], at: int, like: NDArray[Any]) -> NDArray[Any]:
    """Return a part of the buffer with the type and shape of an array. The part need not be aligned."""
    return np.ndarray(like.shape, like.dtype, buffer, offset=at)
