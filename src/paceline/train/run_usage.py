"""CPU and memory of all processes of a run, with the memory of each worker, also of workers on other machines."""

from __future__ import annotations

import numpy as np

from paceline.measure.machine import SystemSampler, Usage
from paceline.memory.worker_status import MEMORY, note_memory
from paceline.train.training import Training


class RunUsage:
    """Samples a run's processes, and keeps the memory peaks of its workers.

    Args:
        training: The training, whose workers note their memory in shared memory.
    """

    def __init__(self, training: Training) -> None:
        self._runtime, self._lines = training.runtime, training.arena["heartbeat"]
        # On a cluster that runs already, workers are no descendants of this process.
        self._elsewhere = training.config.parallel.ray_address is not None
        self._worker_peak_kb = self._lines[: training.layout.num_workers, MEMORY].copy()
        self.sampler = SystemSampler()
        self.sample()

    def sample(self, *, force: bool = False) -> Usage:
        """Return the newest sample, and take one if it is due; `force` takes one now."""
        if self._elsewhere:
            self.sampler.elsewhere_mb = float(self._lines[:, MEMORY].sum()) / 1024
        usage = self.sampler.sample(force=force)
        note_memory(self._lines, self._runtime.pids(), usage.each_mb)
        np.maximum(self._worker_peak_kb, self._lines[: len(self._worker_peak_kb), MEMORY], out=self._worker_peak_kb)
        return usage

    @property
    def worker_peak_mb(self) -> list[float]:
        """Largest sample of each worker's memory."""
        return [round(kb / 1024, 1) for kb in self._worker_peak_kb.tolist()]
