"""Trains with Paceline, one window per line on stdin; `sb3_ppo.py`, `scaling.py`, `modes.py` and others start it."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from time import perf_counter
from typing import Any, TextIO, TypeAlias

# As the command line does, before numpy and torch are loaded.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import torch  # noqa: E402
from windows import Windows, answers  # noqa: E402

from paceline.config.train_config import TrainConfig  # noqa: E402
from paceline.runtime.inline import InlineRuntime  # noqa: E402
from paceline.train.async_rollouts import AsyncRollouts  # noqa: E402
from paceline.train.bookkeeping import Bookkeeping  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.replay_stream import ReplayStream  # noqa: E402
from paceline.train.training import Training  # noqa: E402

Parts: TypeAlias = list[float]


def time_parts() -> Parts:
    """Have sequential trainings note what each rollout and each minibatch takes: all that others do in parallel."""
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
    """The budget of an endless training: asked before every iteration, it waits between windows."""

    def __init__(self, training: Training, stream: TextIO, parts: Parts) -> None:
        library = f"paceline {metadata.version('paceline')}"
        self._training, self._head_start, self._learn_s = training, 0, 0.0
        self._marks: list[float] = []
        self._parts = parts
        self._windows = Windows(
            stream, wake=self._wake, more=self._more, library=library, threads=torch.get_num_threads()
        )

    def spent(self) -> bool:
        """Whether there are no more windows."""
        self._marks.append(perf_counter())
        return not self._windows.go_on(self._training.tracker.steps - self._head_start)

    def progress(self) -> float:
        """The learning rate stays."""
        return 0.0

    def _wake(self) -> None:
        """What asynchronous workers have collected while the others had their windows is not of this one."""
        before = self._training.tracker.steps
        if isinstance(rollouts := self._training.rollouts, AsyncRollouts):
            while rollouts._orders._ordered:  # they can fill so many, and rest then
                rollouts._receive()
        elif isinstance(rollouts, ReplayStream):
            while any(rollouts._orders):
                rollouts._receive(1.0)
        self._head_start += self._training.tracker.steps - before
        self._learn_s = self._clock_learn_s()
        self._marks = [perf_counter()]
        self._parts.clear()

    def _more(self) -> dict[str, Any]:
        laps_s = [after - before for before, after in itertools.pairwise(self._marks)]
        return {"learn_s": self._clock_learn_s() - self._learn_s, "laps_s": laps_s, "parts_s": self._parts}

    def _clock_learn_s(self) -> float:
        return self._training.clock.snapshot().seconds.get("learn", 0.0)


def main() -> None:
    """Build the training from the settings in the first argument, say so, and obey."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = answers()
    parts = time_parts() if settings.get("parts") else []
    shared = {name: settings[name] for name in ("env", "n_envs", "seed", "hidden_sizes", *settings["shared"])}
    training = build(TrainConfig.from_flat(**{"num_workers": 0, "quiet": True, **shared, **settings.get("ours", {})}))
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
