"""The collector of synchronous rollouts, in the driver: workers fill the columns of one rollout, which is the batch."""

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
from paceline.runtime.protocol import shares
from paceline.train.loop import CollectReport
from paceline.train.restarts import BroadcastCall, Restarts
from paceline.train.rollout_job import RolloutJob


class Rollouts:
    """Collects one rollout of all groups at a time, with a barrier at its end."""

    def __init__(
        self,
        restarts: Restarts[RolloutJob],
        slots: Slots,
        tracker: EpisodeTracker,
        history: EpisodeHistory,
        clock: Clock,
        *,
        reward_norm: RewardNormaliser | None = None,
        learning: Slots | None = None,
        freeze: Callable[[], None] | None = None,
        trust_env_state: bool = False,
    ) -> None:
        """Store the parts; `reset` or `load` starts the envs.

        Args:
            restarts: The workers, and what replaces lost ones.
            slots: The slots that the workers fill.
            tracker: Counts steps and episodes.
            history: Keeps the actions of the current episodes.
            clock: Receives the time of the phases `env`, `inference`, `wait` and `sync`.
            reward_norm: Keeps a running return per env, which a new episode resets.
            learning: In a pipeline, slots for a copy of the rollout, which the learner reads while workers collect.
            freeze: In a pipeline, copies the newest weights for the workers, which act with the copy.
            trust_env_state: Store pickled envs in checkpoints, and load them. Loading a pickle executes code from it.
        """
        self._trust_env_state = trust_env_state
        self._slots, self._clock = slots, clock
        self._started: BroadcastCall[CollectTimes] | None = None  # the rollout that workers are collecting
        self._tracker, self._history = tracker, history
        self._learning, self._freeze = learning, freeze
        self._version = 0
        self._pending = self._under_way = False
        self.step = 0
        """Rows collected so far, which is the number of steps of each env."""
        self.last = CollectReport(finished=Episodes.none())
        self.restarts, self._reward_norm = restarts, reward_norm

    def next(self, version: int) -> Trajectory:
        """Collect T steps of every group with the weights of `version`.

        In a pipeline this returns the pending rollout, and workers start to collect the next one. If there is none (in
        a new run, or if the checkpoint has none), it collects one first.
        """
        if not self._pending:
            began, started = perf_counter(), self._begin(version)
            with self.restarts.interruptible.during("rollout"):
                times = self.restarts.finish(started, self)
            self._count(times, perf_counter() - began)
        batch = (self._learning or self._slots).trajectory(self._version)
        if self._learning is not None:
            with self._clock.phase("sync"):
                self._started = self._begin(version)
        return batch

    def release(self) -> None:
        """In a pipeline, wait for the rollout that `next` started: it becomes the pending batch."""
        if self._started is not None:
            started, self._started, began = self._started, None, perf_counter()
            with self.restarts.interruptible.during("rollout"):
                times = self.restarts.finish(started, self)
            self._count(times, perf_counter() - began)

    def _begin(self, version: int) -> BroadcastCall[CollectTimes]:
        """Submit the collection of a rollout with the weights of `version`. Does not wait."""
        self._version, self._pending, self._under_way = version, False, True
        if self._freeze is not None:
            self._freeze()
        self._history.mark()
        return self.restarts.start(RolloutJob.collect, self.step)

    def _count(self, times: list[CollectTimes], waited_s: float) -> None:
        """Count the steps and episodes of a complete rollout, record its actions, and in a pipeline copy it."""
        add_collect_times(self._clock, times, waited_s)
        self._under_way = False
        with self._clock.phase("sync"):
            self.step += self._slots.shape.n_steps
            self.last = CollectReport(times=times, finished=count_episodes(self._tracker, self._slots))
            arrays = self._slots.arrays
            self._history.extend(arrays["action"], arrays["terminated"] | arrays["truncated"], arrays["valid"])
            if self._learning is not None:
                copy_rollout(self._slots, into=self._learning)
                self._pending = True

    def reset(self) -> None:
        """See `Collector.reset`."""
        self.restarts.run_all(RolloutJob.reset)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Collector.state`."""
        state = {"step": np.array(self.step), **under("history/", self._history.state())}
        if self._trust_env_state and not self._under_way:  # envs that are being stepped cannot be pickled
            dumping = self.restarts.start(RolloutJob.dump)
            self._history.mark()
            pickled = [entry for part in self.restarts.finish(dumping, self) for entry in part]
            state["pickled"] = np.frombuffer(b"".join(pickled), np.uint8)
            state["pickled_length"] = np.array([len(entry) for entry in pickled])
        if self._learning is not None and self._pending:
            state["version"] = np.array(self._version)
            state |= under("pending/", slots_state(self._learning))
        return state

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """See `Collector.load`."""
        self.step = int(state["step"])
        if self._learning is not None and "version" in state:
            self._version, self._pending = int(state["version"]), True
            load_slots(self._learning, part(state, "pending/"))
        histories = self._history.load(part(state, "history/"))
        if self._trust_env_state and "pickled" in state:
            entries = np.split(state["pickled"], np.cumsum(state["pickled_length"])[:-1])
            histories = [replace(h, state=entry.tobytes()) for h, entry in zip(histories, entries, strict=True)]
        restarted = [env for part in self.restarts.run_all(RolloutJob.restore, histories) for env in part]
        self.forget_episodes(restarted)
        return restarted

    def respawn_restored(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_restored`: replays each episode up to the start of the rollout."""
        return self.restarts.runtime.respawn(worker, RolloutJob.restore, self._history.marked())

    def respawn_reset(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_reset`."""
        shape = self._slots.shape
        envs = shares(shape.groups, self.restarts.runtime.num_workers)[worker].envs(shape.group_size)
        self._history.start_next_episodes(envs)
        self.restarts.runtime.respawn(worker, RolloutJob.reset)
        return envs

    def forget_episodes(self, envs: list[int]) -> None:
        """See `EnvRecovery.forget_episodes`."""
        self._history.forget(envs)
        self._tracker.forget(envs)
        if self._reward_norm is not None:
            self._reward_norm.forget(envs)

    def extras(self) -> dict[str, NDArray[Any]]:
        """See `Collector.extras`."""
        return (self._learning or self._slots).extras()


def count_episodes(tracker: EpisodeTracker, slots: Slots, columns: slice = slice(None)) -> Episodes:
    """Update the counts of steps and episodes with some slots; returns the episodes that ended in them."""
    outcome = slots.outcome(columns)
    return tracker.update(
        outcome.reward,
        outcome.terminated,
        outcome.truncated,
        outcome.valid,
        success=outcome.success,
        first_env=columns.start or 0,
        reward_parts=outcome.reward_parts,
    )


def add_collect_times(clock: Clock, times: list[CollectTimes], wall_s: float) -> None:
    """Divide the time that the driver waited for a rollout into the phases `env`, `inference` and `wait` of the clock.

    Args:
        clock: Receives the times.
        times: What each worker has measured.
        wall_s: Seconds that the driver waited.
    """
    env_s = sum(t.env_s for t in times) / len(times)
    inference_s = sum(t.inference_s for t in times) / len(times)
    # In a pipeline, part of this time coincided with learning, which the clock has counted already.
    visible = min(1.0, wall_s / busy_s) if (busy_s := env_s + inference_s) else 0.0
    clock.add("env", visible * env_s)
    clock.add("inference", visible * inference_s)
    # The time in which the mean worker was idle: waiting at the barrier, for messages, or for a core that was busy.
    clock.add("wait", max(0.0, wall_s - env_s - inference_s))


def add_waiting_time(clock: Clock, times: list[CollectTimes], wall_s: float, *, workers: int) -> None:
    """Count the time that the driver waited for the next full slots or rows of asynchronous workers.

    Workers do something else at the same time, so it is `wait`. Without workers the driver did what the job has timed.

    Args:
        clock: Receives the times.
        times: What each worker, or without workers the driver, has measured in this time.
        wall_s: Seconds that the driver waited.
        workers: Number of workers.
    """
    if workers:
        clock.add("wait", wall_s)
        return
    learn_s = sum(t.learn_s for t in times)
    clock.add("learn", learn_s)
    add_collect_times(clock, times, wall_s - learn_s)
