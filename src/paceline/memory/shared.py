"""The arena: one shared-memory segment per run, laid out once from a list of fields.

    segment   | field | field | ... | field ||  sparse field | ...
              ^ 64-byte aligned             ^ pages reserved up to here at creation

On Linux the segment is a memfd: it has no name, so no file can be left behind, and the size of /dev/shm does not limit
it. (Elsewhere: an unlinked file; on Windows a named mapping that disappears with its last user.) Its pages are reserved
at creation, so that a shortage of memory is an exception here and not a SIGBUS in the middle of a run. A *sparse* field
uses memory only where it is written.

The arena owns the mapping. Arrays keep the mapping alive, so a view never outlives its memory.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any, Protocol

import numpy as np
import psutil
from numpy.typing import DTypeLike, NDArray

from paceline.errors import ConfigError

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Field:
    """A named array in the arena."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sparse: bool = False

    @classmethod
    def of(cls, name: str, shape: Iterable[int], dtype: DTypeLike, *, sparse: bool = False) -> Field:
        """Create a field; `dtype` is anything that numpy accepts as a dtype."""
        return cls(name, tuple(shape), np.dtype(dtype), sparse)

    @property
    def nbytes(self) -> int:
        """Bytes the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


ArraysByName = Callable[[str], NDArray[Any]]
"""Returns the array of a name, such as `Arena.__getitem__`."""


class Arrays(Protocol):
    """Arrays by name: those of an arena, or private ones."""

    def __getitem__(self, name: str, /) -> NDArray[Any]:
        """Return the array of that name."""


class Arena:
    """Named arrays in one shared segment. Pass it as a process argument: the child process maps the same segment."""

    def __init__(self, fields: tuple[Field, ...], handle: int | str, total: int) -> None:
        self.fields = fields
        self.nbytes = total
        self._handle = handle
        self._map = _map(handle, total)
        self._arrays: dict[str, NDArray[Any]] = {}
        for field, offset in zip(fields, _offsets(fields), strict=True):
            count = math.prod(field.shape)
            flat = np.frombuffer(self._map, field.dtype, count=count, offset=offset)
            self._arrays[field.name] = flat.reshape(field.shape)

    @classmethod
    def create(cls, fields: Iterable[Field]) -> Arena:
        """Allocate the segment, zeroed.

        Raises:
            ConfigError: There is not enough memory.
        """
        # Sparse fields go last, so that the reserved pages are one range from the start.
        ordered = tuple(sorted(fields, key=lambda field: field.sparse))
        if len({field.name for field in ordered}) != len(ordered):
            raise ValueError(f"arena: field names repeat in {[field.name for field in ordered]}")
        offsets = _offsets(ordered)
        ends = [offset + max(field.nbytes, 1) for offset, field in zip(offsets, ordered, strict=True)]
        total = max(ends, default=1)
        reserved = max((end for end, field in zip(ends, ordered, strict=True) if not field.sparse), default=1)
        free = psutil.virtual_memory().available
        if reserved > free:
            largest = max(ordered, key=lambda field: field.nbytes)
            raise ConfigError(
                f"shared memory: the batch needs {_mb(reserved)} (largest: {largest.name} {largest.shape}, "
                f"{_mb(largest.nbytes)}) but {_mb(free)} are free. Lower --n-envs or --n-steps."
            )
        return cls(ordered, _open_segment(total, reserved), total)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __reduce__(self) -> tuple[Callable[..., Arena], tuple[Any, ...]]:
        # The descriptor is duplicated while the process object is pickled: the only moment at which
        # forkserver and spawn can pass descriptors.
        context.assert_spawning(self)
        handle = reduction.DupFd(self._handle) if isinstance(self._handle, int) else self._handle
        return _attach, (self.fields, handle, self.nbytes)

    def close(self) -> None:
        """Drop the arrays and close the descriptor. Memory is freed with the last array. Idempotent."""
        self._arrays.clear()
        if isinstance(self._handle, int) and self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _attach(fields: tuple[Field, ...], handle: Any, total: int) -> Arena:
    return Arena(fields, handle if isinstance(handle, str) else handle.detach(), total)


def _open_segment(total: int, reserved: int) -> int | str:
    if sys.platform == "win32":
        return f"paceline-{uuid.uuid4().hex}"
    if sys.platform == "linux":
        fd = os.memfd_create("paceline", os.MFD_CLOEXEC)
    else:
        # Unlinked at once, so that nothing is left behind.
        fd, path = tempfile.mkstemp(prefix="paceline-")
        os.unlink(path)
    try:
        os.ftruncate(fd, total)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, reserved)
    except OSError as error:
        os.close(fd)
        raise ConfigError(
            f"shared memory: {_mb(reserved)} could not be reserved ({error.strerror}). Lower --n-envs or --n-steps."
        ) from error
    return fd


def _map(handle: int | str, total: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, total, tagname=str(handle))
    return mmap.mmap(int(handle), total)


def _offsets(fields: tuple[Field, ...]) -> list[int]:
    offsets, end = [], 0
    for field in fields:
        offsets.append(end)
        end += -(-max(field.nbytes, 1) // ALIGN) * ALIGN
    return offsets


def _mb(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MB"
