"""The driver's end of collection: has the workers fill their slots and reads the whole as one batch."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.batch import Trajectory
from paceline.collect.history import EpisodeHistory
from paceline.collect.rollout import CollectTimes
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes, EpisodeTracker
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Runtime


class SyncRollouts:
    """One rollout of every group, with a barrier at its end."""

    def __init__(
        self,
        runtime: Runtime,
        slots: Slots,
        tracker: EpisodeTracker,
        history: EpisodeHistory,
        clock: Clock,
        *,
        trust_env_state: bool = False,
    ) -> None:
        """Collect with these workers.

        Args:
            runtime: The workers.
            slots: Where their rollouts appear.
            tracker: Counts steps and episodes.
            history: Keeps the actions of episodes under way.
            clock: Books the time as `env`, `inference`, `wait` and `sync`.
            trust_env_state: Keep pickled envs in checkpoints, and load them: loading runs what is in them.
        """
        self._trust_env_state = trust_env_state
        self._runtime, self._slots, self._clock = runtime, slots, clock
        self._tracker, self._history = tracker, history
        self.step = 0
        """Rows collected so far: the step each env is at."""
        self.times: list[CollectTimes] = []
        """Where each worker's part of the last rollout went."""
        self.finished = Episodes.none()
        """Episodes that ended in the last rollout."""

    def collect(self, version: int) -> Trajectory:
        """Have every group collect T steps with the weights of `version`."""
        began = perf_counter()
        self.times = times = self._runtime.run("collect", self.step)
        wall_s = perf_counter() - began
        env_s = sum(t.env_s for t in times) / len(times)
        inference_s = sum(t.inference_s for t in times) / len(times)
        self._clock.add("env", env_s)
        self._clock.add("inference", inference_s)
        # Whatever the mean worker was not busy: the barrier, hand-over, and cores that others had.
        self._clock.add("wait", max(0.0, wall_s - env_s - inference_s))
        with self._clock.phase("sync"):
            self.step += self._slots.shape.n_steps
            array = self._slots.array
            self.finished = self._tracker.update(
                array("reward"), array("terminated"), array("truncated"), array("valid")
            )
            self._history.extend()
            return self._slots.trajectory(version)

    def reset(self) -> None:
        """Begin the first episodes."""
        self._runtime.run("reset")

    def state(self) -> dict[str, NDArray[Any]]:
        """Where collection is, for a checkpoint."""
        state = {"step": np.array(self.step), **{f"history/{k}": v for k, v in self._history.state().items()}}
        if self._trust_env_state:
            pickled = [entry for part in self._runtime.run("dump") for entry in part]
            state["pickled"] = np.frombuffer(b"".join(pickled), np.uint8)
            state["pickled_length"] = np.array([len(entry) for entry in pickled])
        return state

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Put every env back where it was; returns the envs that could not be and began a new episode."""
        self.step = int(state["step"])
        own = {key.removeprefix("history/"): value for key, value in state.items() if key.startswith("history/")}
        histories = self._history.load(own)
        if self._trust_env_state and "pickled" in state:
            entries = np.split(state["pickled"], np.cumsum(state["pickled_length"])[:-1])
            histories = [replace(h, state=entry.tobytes()) for h, entry in zip(histories, entries, strict=True)]
        restarted = [env for part in self._runtime.run("restore", histories) for env in part]
        self._history.forget(restarted)
        return restarted
