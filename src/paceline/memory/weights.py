"""Published weights: one flat float32 vector in shared memory, with its version number.

In synchronous modes the vector does not change while workers collect, so they read it in place; in a pipeline, which
learns meanwhile, they read a copy of it (`acting/weights`). A learner without workers
updates this vector directly, and publishing copies nothing. A learner with workers, which read the vector between all
of its optimiser steps, has its own vector and copies it here; so does a learner on another device.

In async modes the learner never pauses. It copies each version into one of two buffers in turn, together with the
other arrays that acting needs (such as normaliser statistics), and readers make private copies: no process waits, and
no reader mixes two versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.memory.shared import Arena, Field


class Weights:
    """The newest parameters, readable by every process of the run.

    Args:
        arena: Shared memory.
        snapshots: Double buffer that also receives each version, in async modes.
    """

    def __init__(self, arena: Arena, snapshots: Snapshots | None = None) -> None:
        self.vector: Tensor = torch.from_numpy(arena["weights"])  # [P]
        self._version = arena["version"]
        self._snapshots = snapshots

    @staticmethod
    def fields(size: int) -> list[Field]:
        """Return the arena fields."""
        return [Field.of("weights", (size,), np.float32), Field.of("version", (1,), np.int64)]

    @property
    def version(self) -> int:
        """Number of times that weights have been published."""
        return int(self._version[0])

    @version.setter
    def version(self, version: int) -> None:
        self._version[0] = version

    def renew(self) -> None:
        """Async modes: copy the current weights to the snapshots. Call before the first read, and after a load."""
        if self._snapshots is not None:
            self._snapshots.write(self.version)

    def publish(self, flat: Tensor) -> int:
        """Make `flat` the newest weights; returns their version."""
        if flat.data_ptr() != self.vector.data_ptr():
            self.vector.copy_(flat)
        if self._snapshots is not None:
            self._snapshots.write(self.version + 1)
        self._version[0] += 1
        return self.version

    def showing(self, learned: Tensor) -> Callable[[], None] | None:
        """Return a function that copies the learner's CPU vector to shared memory; None if it learns in place here."""
        if learned.data_ptr() == self.vector.data_ptr():
            return None
        return partial(np.copyto, self.vector.numpy(), learned.numpy())

    def sha256(self) -> str:
        """Return the SHA-256 of the weights; equal runs have equal hashes."""
        return hashlib.sha256(self.vector.numpy().tobytes()).hexdigest()


class LiveWeights:
    """Weights that several workers update in place at any time, without a lock (A3C).

    Args:
        arena: Shared memory with `fields`.
        worker: Index of the worker that updates them here; None for read-only use.
    """

    def __init__(self, arena: Arena, worker: int | None = None) -> None:
        self.vector: Tensor = torch.from_numpy(arena["live"])  # [P]
        self._changes, self._worker = arena["live_changes"], worker

    @staticmethod
    def fields(size: int, workers: int) -> list[Field]:
        """Return the arena fields. Each worker counts on its own cache line: one shared counter would lose updates."""
        return [Field.of("live", (size,), np.float32), Field.of("live_changes", (max(1, workers), 8), np.int64)]

    @property
    def version(self) -> int:
        """Total number of updates by all workers."""
        return int(self._changes[:, 0].sum())

    @version.setter
    def version(self, version: int) -> None:
        self._changes[:] = 0
        self._changes[0, 0] = version

    def publish(self, flat: Tensor) -> int:  # noqa: ARG002 - the weights are already in shared memory
        """Count one update; returns the total."""
        self._changes[self._worker, 0] += 1
        return self.version


class Snapshots:
    """Double buffer of all arrays that acting needs, which readers copy while the learner continues.

    Args:
        arena: Shared memory with `Weights.fields` and `fields`.
        names: The fields that a snapshot holds, in this order.
    """

    def __init__(self, arena: Arena, names: Sequence[str]) -> None:
        self._buffers: NDArray[np.float32] = arena["snapshots"]  # [2, N]
        self._version, self._begun = arena["version"], arena["snapshot_begun"]
        self._names = list(names)
        self._originals: list[NDArray[np.float32]] = [arena[name] for name in names]

    @staticmethod
    def fields(parts: Sequence[Field]) -> list[Field]:
        """Return the arena fields for snapshots of these fields, which must all be float32."""
        size = sum(field.nbytes for field in parts) // 4
        return [Field.of("snapshots", (2, size), np.float32), Field.of("snapshot_begun", (1,), np.int64)]

    def write(self, version: int) -> None:
        """Copy the originals as `version`; the caller then publishes that number. Only one process may write."""
        self._begun[0] = version
        np.concatenate([part.reshape(-1) for part in self._originals], out=self._buffers[version % 2])

    def private(self) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Allocate a private copy; returns the vector and views of its fields by name."""
        vector = np.zeros(self._buffers.shape[1], np.float32)
        cuts = np.cumsum([part.size for part in self._originals])[:-1]
        pieces = zip(self._names, np.split(vector, cuts), self._originals, strict=True)
        return vector, {name: piece.reshape(part.shape) for name, piece, part in pieces}

    def copy(self, into: NDArray[np.float32]) -> int:
        """Copy the newest version into a private vector; returns its number. Retries if the buffer was overwritten."""
        while True:
            version = int(self._version[0])
            into[...] = self._buffers[version % 2]
            if int(self._begun[0]) <= version + 1:  # this buffer is overwritten only by version + 2
                return version
