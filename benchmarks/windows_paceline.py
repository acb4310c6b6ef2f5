"""Trains with Paceline, one window per line on stdin; `sb3_ppo.py` and `scaling.py` start it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

# As the command line does, before numpy and torch are loaded.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import torch  # noqa: E402
from windows import Windows, answers  # noqa: E402

from paceline.train import loops  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.config import TrainConfig  # noqa: E402
from paceline.train.keeper import Keeper  # noqa: E402


class WindowBudget:
    """The budget of an endless training: asked before every iteration, it waits between windows."""

    def __init__(self, windows: Windows, count: Callable[[], int]) -> None:
        self._windows, self._count = windows, count

    def spent(self) -> bool:
        """Whether there are no more windows."""
        return not self._windows.go_on(self._count())

    def progress(self) -> float:
        """The learning rate stays."""
        return 0.0


def main() -> None:
    """Build the training from the settings in the first argument, say so, and obey."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = answers()
    names = ("env", "n_envs", "seed", "hidden_sizes", *settings["shared"])
    ours = {"num_workers": 0, "quiet": True, **settings.get("ours", {})}
    training = build(TrainConfig.from_flat(**ours, **{name: settings[name] for name in names}))
    try:
        training.rollouts.reset()
        library = f"paceline {metadata.version('paceline')}"
        windows = Windows(stream, library=library, threads=torch.get_num_threads())
        # The loop and the bookkeeping of a real run, without its files.
        with Keeper(training) as keeper:
            budget = WindowBudget(windows, lambda: training.tracker.steps)
            loops.train_sync(training.rollouts, training.learner, budget, keeper)
    finally:
        training.close()


if __name__ == "__main__":
    main()
