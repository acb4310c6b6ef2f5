"""Published weights: one flat float32 vector in shared memory, and the version it is.

In sync mode nobody writes the vector while workers collect, so they read it in place. A learner without workers
works on this very vector and publishing copies nothing. One with workers, which read it between all of its steps, has a
vector of its own and shows it to them, and so does one on another device.

In async modes the learner never rests. Each version is copied into one of two buffers in turn, together with whatever
else acting needs, and readers take copies of their own: nobody waits, and nobody reads half of two versions.
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
    """The newest parameters, for every process of the run.

    Args:
        arena: Shared memory.
        snapshots: Where each version is copied besides, in async modes.
    """

    def __init__(self, arena: Arena, snapshots: Snapshots | None = None) -> None:
        self.vector: Tensor = torch.from_numpy(arena["weights"])  # [P]
        self._version = arena["version"]
        self._snapshots = snapshots

    @staticmethod
    def fields(size: int) -> list[Field]:
        """What an arena must hold."""
        return [Field.of("weights", (size,), np.float32), Field.of("version", (1,), np.int64)]

    @property
    def version(self) -> int:
        """How many times weights have been published."""
        return int(self._version[0])

    @version.setter
    def version(self, version: int) -> None:
        self._version[0] = version

    def renew(self) -> None:
        """In async modes, have readers see what is here now: before the first of them reads, and after a load."""
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
        """Has workers see weights that are learned elsewhere on the CPU, as they are; None if they are learned here."""
        if learned.data_ptr() == self.vector.data_ptr():
            return None
        return partial(np.copyto, self.vector.numpy(), learned.numpy())

    def sha256(self) -> str:
        """The fingerprint that equal runs share."""
        return hashlib.sha256(self.vector.numpy().tobytes()).hexdigest()


class LiveWeights:
    """Weights that several workers change in place, each whenever it likes and without a lock.

    Args:
        arena: Shared memory with `fields`.
        worker: The one that changes them here; None for somebody who only looks.
    """

    def __init__(self, arena: Arena, worker: int | None = None) -> None:
        self.vector: Tensor = torch.from_numpy(arena["live"])  # [P]
        self._changes, self._worker = arena["live_changes"], worker

    @staticmethod
    def fields(size: int, workers: int) -> list[Field]:
        """What an arena must hold. Each worker counts on a cache line of its own: a common count would lose some."""
        return [Field.of("live", (size,), np.float32), Field.of("live_changes", (max(1, workers), 8), np.int64)]

    @property
    def version(self) -> int:
        """How many times they were changed."""
        return int(self._changes[:, 0].sum())

    @version.setter
    def version(self, version: int) -> None:
        self._changes[:] = 0
        self._changes[0, 0] = version

    def publish(self, flat: Tensor) -> int:  # noqa: ARG002 - they are where everybody sees them
        """Count a change; returns how many there were."""
        self._changes[self._worker, 0] += 1
        return self.version


class Snapshots:
    """Two versions of everything that acting needs, for readers that take copies while the learner goes on.

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
        """What an arena must hold for snapshots of these fields, all of float32."""
        size = sum(field.nbytes for field in parts) // 4
        return [Field.of("snapshots", (2, size), np.float32), Field.of("snapshot_begun", (1,), np.int64)]

    def write(self, version: int) -> None:
        """Copy the originals as `version`, which the caller then announces. One writer only."""
        self._begun[0] = version
        np.concatenate([part.reshape(-1) for part in self._originals], out=self._buffers[version % 2])

    def private(self) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Room for a copy, and views of its parts by name."""
        vector = np.zeros(self._buffers.shape[1], np.float32)
        cuts = np.cumsum([part.size for part in self._originals])[:-1]
        pieces = zip(self._names, np.split(vector, cuts), self._originals, strict=True)
        return vector, {name: piece.reshape(part.shape) for name, piece, part in pieces}

    def copy(self, into: NDArray[np.float32]) -> int:
        """Copy the newest version; returns which it is."""
        while True:
            version = int(self._version[0])
            into[...] = self._buffers[version % 2]
            if int(self._begun[0]) <= version + 1:  # this buffer is written again for version + 2
                return version
