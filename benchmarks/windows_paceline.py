"""Trains with Paceline in one process, one window per line on stdin; `sb3_ppo.py` starts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from time import perf_counter
from typing import Any

# As the command line does, before numpy and torch are loaded.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import torch  # noqa: E402

from paceline.train import loops  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.config import TrainConfig  # noqa: E402
from paceline.train.keeper import Keeper  # noqa: E402


class Windows:
    """The budget of an endless training: asked before every iteration, it reports and waits between windows."""

    def __init__(self, steps: Callable[[], int]) -> None:
        self._count = steps
        self._began = self._seconds = 0.0
        self._steps = -1

    def spent(self) -> bool:
        """Whether stdin has ended; a window ends with the first iteration past its time."""
        now = perf_counter()
        if self._steps >= 0:
            if now - self._began < self._seconds:
                return False
            print(json.dumps({"steps": self._count() - self._steps, "seconds": now - self._began}), flush=True)
        line = sys.stdin.readline()
        if not line:
            return True
        self._seconds, self._steps, self._began = float(line), self._count(), perf_counter()
        return False

    def progress(self) -> float:
        """The learning rate stays."""
        return 0.0


def main() -> None:
    """Build the training from the settings in the first argument, say so, and obey."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    names = ("env", "n_envs", "seed", "hidden_sizes", *settings["shared"])
    training = build(TrainConfig.from_flat(num_workers=0, quiet=True, **{name: settings[name] for name in names}))
    try:
        training.rollouts.reset()
        library = f"paceline {metadata.version('paceline')}"
        print(json.dumps({"library": library, "threads": torch.get_num_threads()}), flush=True)
        # The loop and the bookkeeping of a real run, without its files.
        with Keeper(training) as keeper:
            loops.train_sync(training.rollouts, training.learner, Windows(lambda: training.tracker.steps), keeper)
    finally:
        training.close()


if __name__ == "__main__":
    main()
