"""The driver's end of collection: has the workers fill their slots and reads the whole as one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.batch import Trajectory
from paceline.collect.history import EpisodeHistory
from paceline.collect.times import CollectTimes
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes, EpisodeTracker
from paceline.memory.parts import part, under
from paceline.memory.slot_copies import copy_rollout, load_slots, slots_state
from paceline.memory.slots import Slots
from paceline.nets.normalise import RewardNormaliser
from paceline.runtime.protocol import Runtime
from paceline.train.env_recovery import RolloutRecovery
from paceline.train.loop import CollectReport
from paceline.train.restarts import Restarts, SubmittedCall
from paceline.train.rollout_job import RolloutJob


class Rollouts:
    """One rollout of every group at a time, with a barrier at its end."""

    def __init__(
        self,
        runtime: Runtime[RolloutJob],
        slots: Slots,
        tracker: EpisodeTracker,
        history: EpisodeHistory,
        clock: Clock,
        *,
        reward_norm: RewardNormaliser | None = None,
        learning: Slots | None = None,
        freeze: Callable[[], None] | None = None,
        trust_env_state: bool = False,
        restarts: Restarts[RolloutJob] | None = None,
    ) -> None:
        """Collect with these workers.

        Args:
            runtime: The workers.
            slots: Where their rollouts appear.
            tracker: Counts steps and episodes.
            history: Keeps the actions of episodes under way.
            clock: Books the time as `env`, `inference`, `wait` and `sync`.
            reward_norm: Keeps a return for each env's episode under way.
            learning: In a pipeline, where the learner finds a copy of the rollout while workers write the next.
            freeze: In a pipeline, has workers act with the newest weights until it is called again.
            trust_env_state: Keep pickled envs in checkpoints, and load them: loading runs what is in them.
            restarts: Replaces workers that are lost.
        """
        self._trust_env_state = trust_env_state
        self._slots, self._clock = slots, clock
        self._started: SubmittedCall[CollectTimes] | None = None  # the rollout under way
        self._tracker, self._history = tracker, history
        self._learning, self._freeze = learning, freeze
        self._version = 0
        self._pending = False
        self.step = 0
        """Rows collected so far: the step each env is at."""
        self.last = CollectReport(finished=Episodes.none())
        self.restarts = restarts or Restarts(runtime)
        self._recovery = RolloutRecovery(history, [tracker, reward_norm], slots.shape, runtime)

    def next(self, version: int) -> Trajectory:
        """Collect T steps of every group with the weights of `version`.

        In a pipeline the batch is the rollout that was finished before, and workers begin the next one. It is
        complete already except in a new run, or where a checkpoint holds none.
        """
        if not self._pending:
            started, began = self._begin(version), perf_counter()
            self._count(self.restarts.finish(started, self._recovery), perf_counter() - began)
        batch = (self._learning or self._slots).trajectory(self._version)
        if self._learning is not None:
            self._started = self._begin(version)
        return batch

    def release(self) -> None:
        """In a pipeline, wait for the rollout that `next` began: it becomes the pending batch."""
        if self._started is not None:
            started, self._started, began = self._started, None, perf_counter()
            self._count(self.restarts.finish(started, self._recovery), perf_counter() - began)

    def _begin(self, version: int) -> SubmittedCall[CollectTimes]:
        """Have workers begin a rollout with the weights of `version`. Does not wait."""
        self._version, self._pending = version, False
        if self._freeze is not None:
            self._freeze()
        self._history.mark()
        return self.restarts.start(RolloutJob.collect, self.step)

    def _count(self, times: list[CollectTimes], waited_s: float) -> None:
        """Take account of the rollout that all workers have collected."""
        add_collect_times(self._clock, times, waited_s)
        with self._clock.phase("sync"):
            self.step += self._slots.shape.n_steps
            self.last = CollectReport(times=times, finished=count_episodes(self._tracker, self._slots))
            array = self._slots.array
            self._history.extend(array("action"), array("terminated") | array("truncated"), array("valid"))
            if self._learning is not None:
                copy_rollout(self._slots, into=self._learning)
                self._pending = True

    def reset(self) -> None:
        """Begin the first episodes."""
        self.restarts.run_all(RolloutJob.reset)

    def state(self) -> dict[str, NDArray[Any]]:
        """Where collection is, for a checkpoint."""
        state = {"step": np.array(self.step), **under("history/", self._history.state())}
        if self._trust_env_state:
            dumping = self.restarts.start(RolloutJob.dump)
            self._history.mark()
            pickled = [entry for part in self.restarts.finish(dumping, self._recovery) for entry in part]
            state["pickled"] = np.frombuffer(b"".join(pickled), np.uint8)
            state["pickled_length"] = np.array([len(entry) for entry in pickled])
        if self._learning is not None and self._pending:
            state["version"] = np.array(self._version)
            state |= under("pending/", slots_state(self._learning))
        return state

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Put every env back where it was; returns the envs that could not be and began a new episode."""
        self.step = int(state["step"])
        if self._learning is not None and "version" in state:
            self._version, self._pending = int(state["version"]), True
            load_slots(self._learning, part(state, "pending/"))
        histories = self._history.load(part(state, "history/"))
        if self._trust_env_state and "pickled" in state:
            entries = np.split(state["pickled"], np.cumsum(state["pickled_length"])[:-1])
            histories = [replace(h, state=entry.tobytes()) for h, entry in zip(histories, entries, strict=True)]
        restarted = [env for part in self.restarts.run_all(RolloutJob.restore, histories) for env in part]
        self._recovery.forget_episodes(restarted)
        return restarted

    def extras(self) -> dict[str, NDArray[Any]]:
        """[T+1, B, ...] what was read beside the observations of the last rollout, by name."""
        return (self._learning or self._slots).extras()


def count_episodes(tracker: EpisodeTracker, slots: Slots, columns: slice = slice(None)) -> Episodes:
    """Take the steps of some slots into account; returns the episodes that ended in them."""
    came = slots.outcome(columns)
    return tracker.update(
        came.reward,
        came.terminated,
        came.truncated,
        came.valid,
        first_env=columns.start or 0,
        reward_parts=came.reward_parts,
    )


def add_collect_times(clock: Clock, times: list[CollectTimes], wall_s: float) -> None:
    """Where the time went that the driver waited for its workers."""
    env_s = sum(t.env_s for t in times) / len(times)
    inference_s = sum(t.inference_s for t in times) / len(times)
    # In a pipeline part of it was hidden by learning, and has been booked as that.
    seen = min(1.0, wall_s / (env_s + inference_s))
    clock.add("env", seen * env_s)
    clock.add("inference", seen * inference_s)
    # Whatever the mean worker was not busy: the barrier, hand-over, and cores that others had.
    clock.add("wait", max(0.0, wall_s - env_s - inference_s))
