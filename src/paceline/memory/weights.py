"""Published weights: one flat float32 vector in shared memory, and the version it is.

In sync mode nobody writes the vector while workers collect, so they read it in place. A learner on the CPU
works on this very vector and publishing copies nothing; a learner on a device copies it once.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from paceline.memory.shared import Arena, Field


class Weights:
    """The newest parameters, for every process of the run."""

    def __init__(self, arena: Arena) -> None:
        self.vector: Tensor = torch.from_numpy(arena["weights"])  # [P]
        self._version = arena["version"]

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

    def publish(self, flat: Tensor) -> int:
        """Make `flat` the newest weights; returns their version."""
        if flat.data_ptr() != self.vector.data_ptr():
            self.vector.copy_(flat)
        self._version[0] += 1
        return self.version

    def sha256(self) -> str:
        """The fingerprint that equal runs share."""
        return hashlib.sha256(self.vector.numpy().tobytes()).hexdigest()
