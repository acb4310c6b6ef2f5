"""What travels between the arenas of two machines, as one contiguous buffer a time.

    here: views of an arena --pack--> bytes ==network==> bytes --unpack--> views of the arena there

Both ends name the arrays by the same function, in the same order, so that the bytes need no description. A view may
depend on those before it: when it is asked for, their values have arrived. So lists of any length can travel: first
how many, then that many.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arena, Field
from paceline.runtime.protocol import J_co, Program, Share

Views = Iterable[NDArray[Any]]
"""Arrays to read from or to write into, made one by one."""
DISAGREE = "arrived, and other ones were expected. Are versions the same?"


class Held(NamedTuple):
    """The groups of a node."""

    first_group: int
    groups: int


@dataclass(frozen=True, slots=True)
class Did:
    """A command, and what became of it."""

    command: str
    args: tuple[Any, ...]
    results: Sequence[Any]
    """By worker."""


class Transfer(Protocol[J_co]):
    """What a program's driver and workers tell each other through an arena, where they do not share one.

    Handed to every machine: must survive cloudpickle.
    """

    def fields(self, held: Held, workers: int) -> list[Field]:
        """What the arena of a node with these groups and workers must hold."""

    def program(self, held: Held) -> Program[J_co]:
        """What the workers of that node run."""

    def loads(self, command: str) -> Sequence[str]:
        """What workers must be told before this command, by name."""

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """Changes whenever what the driver has to tell does; None where it must always be told.

        Args:
            load: Which.
            arena: The driver's.
            command: How many commands were started.
        """

    def down(self, load: str, arena: Arena, held: Held | None, pool: Sequence[Share]) -> Views:
        """From the driver to nodes.

        Args:
            load: What.
            arena: The one at this end.
            held: The groups that it holds, at a node's end; None at the driver's.
            pool: At a node's end, the workers that are told.
        """

    def up(self, did: Did, arena: Arena, held: Held | None, pool: Sequence[Share]) -> Views:
        """From nodes to the driver.

        Args:
            did: What was done there.
            arena: The one at this end.
            held: As in `down`.
            pool: The workers that did it, in order: groups are numbered as in the whole run, workers as in this arena.
        """

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """The arguments without what is of no use to these workers."""

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """The driver has posted this: note what its workers would, if they saw its arena."""


def pack(views: Views) -> NDArray[np.uint8]:
    """All of them as one buffer."""
    parts, at = list(views), 0
    buffer = np.empty(sum(part.nbytes for part in parts), np.uint8)
    for part in parts:
        _piece(buffer, at, part)[...] = part
        at += part.nbytes
    return buffer


def unpack(buffer: NDArray[np.uint8], views: Views) -> None:
    """Write a buffer into them.

    Raises:
        ValueError: The two ends disagree on what travels.
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
    raise ValueError(f"freight: {len(buffer)} bytes {DISAGREE}")


def unload(parts: Sequence[NDArray[Any]], views: Views) -> None:
    """Write arrays into them, one by one.

    Raises:
        ValueError: The two ends disagree on what travels.
    """
    left = list(reversed(parts))
    for view in views:
        if not left or left[-1].shape != view.shape:
            break
        view[...] = left.pop()
    else:
        if not left:
            return
    raise ValueError(f"freight: arrays of {sum(part.nbytes for part in parts)} bytes {DISAGREE}")


def _piece(buffer: NDArray[np.uint8], at: int, like: NDArray[Any]) -> NDArray[Any]:
    """A part of the buffer with the type and shape of an array. It need not be aligned."""
    return np.ndarray(like.shape, like.dtype, buffer, offset=at)
