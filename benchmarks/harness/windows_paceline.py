"""Train with Paceline in windows that a suite asks for: `sb3_ppo`, `scaling`, `modes` and others start this process.

Settings: `env`, `n_envs`, `seed`, `hidden_sizes`, the names in `shared`, and `ours` for settings of Paceline alone.
With `parts` the replies contain the duration of each rollout and minibatch.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from time import perf_counter
from typing import Any, TextIO, TypeAlias

# Before numpy and torch are imported, as the command line does.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import torch  # noqa: E402

from benchmarks.harness.windows import Windows, reply_stream  # noqa: E402
from paceline.config.train_config import TrainConfig  # noqa: E402
from paceline.runtime.inline import InlineRuntime  # noqa: E402
from paceline.train.async_rollouts import AsyncRollouts  # noqa: E402
from paceline.train.bookkeeping import Bookkeeping  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.replay_stream import ReplayStream  # noqa: E402
from paceline.train.training import Training  # noqa: E402

Parts: TypeAlias = list[float]


def time_parts() -> Parts:
    """Wrap the inline runtime so that it appends the seconds of each rollout and minibatch to the returned list.

    These are the parts that a training with workers computes in parallel.
    """
    parts: Parts = []

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            result = method(*args, **kwargs)
            parts.append(perf_counter() - began)
            return result

        return wrapper

    for name in ("wait", "work"):
        setattr(InlineRuntime, name, timed(getattr(InlineRuntime, name)))
    return parts


class WindowBudget:
    """A training budget that never runs out; before each iteration it blocks if a window has ended."""

    def __init__(self, training: Training, stream: TextIO, parts: Parts) -> None:
        library = f"paceline {metadata.version('paceline')}"
        self._training, self._steps_between_windows, self._learn_s = training, 0, 0.0
        self._iteration_ends: list[float] = []
        self._parts = parts
        self._windows = Windows(
            stream, resume=self._resume, extra=self._extra, library=library, threads=torch.get_num_threads()
        )

    def spent(self) -> bool:
        """Whether the driver has closed the pipe; blocks between windows."""
        self._iteration_ends.append(perf_counter())
        return not self._windows.keep_training(self._training.tracker.steps - self._steps_between_windows)

    def progress(self) -> float:
        """Always 0, so that schedules such as the learning rate's do not move."""
        return 0.0

    def _resume(self) -> None:
        """Take in what asynchronous workers collected between windows, and exclude it from the next window."""
        before = self._training.tracker.steps
        if isinstance(rollouts := self._training.rollouts, AsyncRollouts):
            # Workers stop when they have filled the slots that were requested.
            while rollouts._scheduler.oldest_under_way() is not None:
                rollouts._receive()
        elif isinstance(rollouts, ReplayStream):
            while any(rollouts._requests):
                rollouts._receive(1.0)
        self._steps_between_windows += self._training.tracker.steps - before
        self._learn_s = self._clock_learn_s()
        self._iteration_ends = [perf_counter()]
        self._parts.clear()

    def _extra(self) -> dict[str, Any]:
        laps_s = [after - before for before, after in itertools.pairwise(self._iteration_ends)]
        return {"learn_s": self._clock_learn_s() - self._learn_s, "laps_s": laps_s, "parts_s": self._parts}

    def _clock_learn_s(self) -> float:
        return self._training.clock.snapshot().seconds.get("learn", 0.0)


def main() -> None:
    """Build the training from the settings in the first argument, and train until stdin is closed."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = reply_stream()
    parts = time_parts() if settings.get("parts") else []
    shared = {name: settings[name] for name in ("env", "n_envs", "seed", "hidden_sizes", *settings["shared"])}
    # Other libraries do not normalise rewards by default.
    common = {"num_workers": 0, "quiet": True, "normalize_reward": False}
    training = build(TrainConfig.from_flat(**{**common, **shared, **settings.get("ours", {})}))
    try:
        training.rollouts.reset()
        # The loop and the bookkeeping of a real run, without its files.
        with Bookkeeping(training) as bookkeeping:
            budget = WindowBudget(training, stream, parts)
            training.driver.train(budget, bookkeeping)
    finally:
        training.close()


if __name__ == "__main__":
    main()
