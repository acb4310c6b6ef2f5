"""Workers killed in the middle of their work: training continues and never learns from a half-written slot."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from tests.inside import inside

from paceline.batch import Trajectory
from paceline.collect.times import CollectTimes
from paceline.config.train_config import TrainConfig
from paceline.errors import WorkerDied
from paceline.measure.record import Summary
from paceline.memory.replay import Replay
from paceline.memory.worker_status import BEAT
from paceline.runtime.protocol import Share
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.callbacks import Callbacks, Moment
from paceline.train.replay_stream import ReplayStream
from paceline.train.restarts import BroadcastCall
from paceline.train.rollouts import Rollouts
from paceline.train.run import Run, open_folder
from paceline.train.slot_scheduler import SlotScheduler

ASYNC = ["impala", "appo", "a3c"]
SYNC: dict[str, dict[str, Any]] = {"ppo": {}, "pipeline": {"pipeline": True}}


def config(algo: str, **more: Any) -> TrainConfig:
    settings = {
        "algo": algo,
        "env": "CartPole-v1",
        "n_envs": 8,
        "n_steps": 32,
        "num_workers": 2,
        "total_timesteps": 20_000,
        "n_eval_episodes": 0,
        "quiet": True,
        "seed": 3,
    }
    return TrainConfig.from_flat(**{**settings, **more})


@contextmanager
def killing(run: Run, kills: int, *, every_steps: int = 0, every_s: float = 0.0, seed: int = 0) -> Iterator[list[int]]:
    """Kill random workers while the block runs; yields the pids that were killed so far.

    With `every_steps` the number of kills does not depend on the load of the machine. The moment within a worker's work
    is random in any case.
    """
    killed: list[int] = []
    stop, chance = threading.Event(), random.Random(seed)

    def due() -> bool:
        """Wait for the next kill; False if the block ends before."""
        share = chance.uniform(0.5, 1.5)
        steps = run.training.tracker.steps + every_steps * share
        ended = stop.wait(every_s * share)
        while not ended and run.training.tracker.steps < steps:
            ended = stop.wait(0.001)
        return not ended

    def kill() -> None:
        while len(killed) < kills and due():
            pid = chance.choice(run.training.runtime.pids())
            if pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


class Replaced:
    """Stops a run `updates` updates after `workers` workers have been replaced."""

    def __init__(self, run: Run, workers: int, updates: int = 10) -> None:
        self._restarts, self._workers, self._left = inside(run).rollouts.restarts, workers, updates

    def on_update(self, moment: Moment) -> bool:
        self._left -= self._restarts.count >= self._workers
        return self._left > 0


def go_until_replaced(run: Run, workers: int) -> Summary:
    return run.go(steps=10**9, callbacks=Callbacks([Replaced(run, workers)]))


def poison(slots: Any, columns: slice) -> None:
    """Fill columns of a slot with NaN, which a worker must overwrite before the slot is learned from."""
    for name in ("reward", "log_prob", "value", "obs/obs"):
        slots.arrays[name][:, columns] = np.nan


def check_learned_batches(run: Run) -> Callable[[], int]:
    """Check every batch for NaN before the learner uses it; returns a function that counts the batches."""
    learner, update, seen = inside(run).learner, inside(run).learner.update, [0]

    def checked(batch: Trajectory, progress: float) -> dict[str, float]:
        seen[0] += 1
        valid = batch.valid
        for tensor in (batch.reward, batch.log_prob, batch.value[:-1], batch.obs["obs"][:-1].sum(-1)):
            assert not tensor[valid].isnan().any(), "an incomplete slot was learned from"
        assert not batch.value[-1][valid[-1]].isnan().any()
        assert not batch.obs["obs"][-1][valid[-1]].isnan().any()
        stats: dict[str, float] = update(batch, progress)
        return stats

    learner.update = checked
    return lambda: seen[0]


@pytest.mark.parametrize("algo", ASYNC)
def test_async_training_goes_on_and_no_torn_slot_is_learned(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = SlotScheduler._submit

    def poisoned(self: SlotScheduler, worker: int, into: int) -> None:
        poison(self._sets[into], self._columns(worker))
        submit(self, worker, into)

    monkeypatch.setattr(SlotScheduler, "_submit", poisoned)
    with Run(config(algo)) as run:
        batches = check_learned_batches(run)
        with killing(run, kills=3, every_steps=2000) as killed:
            summary = go_until_replaced(run, 3)
        assert len(killed) == 3
        assert summary.restarts == 3
        assert batches() > 10
        assert_counters_add_up(run, summary)
        assert np.isfinite(run.training.weights.vector.numpy()).all()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("algo", ASYNC)
def test_twenty_kills_in_a_minute_do_not_hang_the_run(algo: str) -> None:
    with Run(config(algo, n_envs=16, num_workers=4)) as run:
        check_learned_batches(run)
        with killing(run, kills=20, every_s=2.8, seed=1) as killed:
            summary = run.go(seconds=65)
        assert len(killed) == 20
        assert 19 <= summary.restarts <= 20
        assert_counters_add_up(run, summary)
        assert np.isfinite(run.training.weights.vector.numpy()).all()


def assert_counters_add_up(run: Run, summary: Summary) -> None:
    rollouts = inside(run).rollouts
    assert isinstance(rollouts, AsyncRollouts)
    assert rollouts.learned_steps + rollouts.dropped_steps == summary.steps
    assert summary.dropped_steps == rollouts.dropped_steps


@pytest.mark.parametrize("mode", SYNC)
def test_in_step_with_each_other_the_run_is_the_same_as_without_the_deaths(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Rollouts._begin

    def poisoned(self: Rollouts, version: int) -> BroadcastCall[CollectTimes]:
        # All but the last row, which holds the current observations of the envs.
        for name in ("reward", "log_prob", "value", "obs/obs"):
            self._slots.arrays[name][:-1] = np.nan
        return begin(self, version)

    settings = config("ppo", **SYNC[mode], total_timesteps=12_000)
    with Run(settings) as run:
        expected = run.go()
    monkeypatch.setattr(Rollouts, "_begin", poisoned)
    with Run(settings) as run:
        check_learned_batches(run)
        with killing(run, kills=3, every_steps=2000) as killed:
            summary = run.go()
    assert killed
    assert len(killed) - 1 <= summary.restarts <= len(killed)  # the last kill may come too late to be noticed
    assert summary.weights_sha256 == expected.weights_sha256
    assert (summary.steps, summary.episodes) == (expected.steps, expected.episodes)


def test_a_worker_that_dies_again_and_again_is_given_up_with_the_count() -> None:
    env = {"env": "paceline.envs.fault:FaultEnv", "env_kwargs": {"mode": "exit", "at_step": 5}, "env_threads": 1}
    for algo in ("ppo", "impala"):
        with pytest.raises(WorkerDied, match="exit code 7") as caught, Run(config(algo, **env)) as run:
            run.go()
        assert "replaced 3 times in a row" in str(caught.value)


def test_worker_death_is_reported(tmp_path: Path) -> None:
    settings = config("impala", output_dir=tmp_path / "run")
    with Run(settings, folder=open_folder(settings)) as run, killing(run, kills=1, every_steps=500):
        go_until_replaced(run, 1)
    log = (tmp_path / "run" / "train.log").read_text()
    said = r"worker \d \(pid \d+, groups \d-\d\) ended in `collect`(, at envs? [\d-]+)?: killed by SIGKILL\..*"
    memory = r" It last used [\d,]+ MB \(PSS\); [\d,]+ MB are free now\."
    assert re.search(said + memory + r" It is replaced; training continues\.", log), log


def test_envs_that_cannot_be_restored_start_new_episodes_with_a_warning(tmp_path: Path) -> None:
    settings = config("ppo", native_vector="always", output_dir=tmp_path / "run")
    with Run(settings, folder=open_folder(settings)) as run, killing(run, kills=1, every_steps=500):
        go_until_replaced(run, 1)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "could not be restored." in log
    assert "started new episodes." in log


def test_close_does_not_wait_for_long_rollouts() -> None:
    busy = {"env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 50.0}, "env_threads": 1}
    with Run(config("impala", **busy, n_steps=400)) as run:
        pids = run.training.runtime.pids()
        time.sleep(0.2)
        ends = [psutil.Process(pid) for pid in pids]
    assert not any(process.is_running() for process in ends)
    runtime: Any = run.training.runtime
    codes = [worker.process.exitcode for worker in runtime._workers]
    assert codes == [0, 0], "the workers ended by themselves and closed their envs"


def test_slots_that_a_worker_filled_before_it_died_are_learned_from() -> None:
    """A full slot is complete; only the rollout that the worker had begun is lost."""
    learned: list[NDArray[np.float32]] = []
    learned_steps: list[int] = []
    with Run(config("impala", num_workers=1, slots_per_worker=2)) as run:
        rollouts, learner = inside(run).rollouts, inside(run).learner
        assert isinstance(rollouts, AsyncRollouts)
        scheduler, update = rollouts._scheduler, learner.update
        sets = scheduler._sets

        def watched(batch: Trajectory, progress: float) -> dict[str, float]:
            learned.append(batch.obs["obs"].numpy().copy())
            learned_steps.append(rollouts.learned_steps)
            stats: dict[str, float] = update(batch, progress)
            return stats

        learner.update = watched
        scheduler.start()  # as the first batch does
        wait_until_idle(run)
        filled = [slots.arrays["obs/obs"].copy() for slots in sets]
        filled_steps = [np.count_nonzero(slots.arrays["valid"]) for slots in sets]
        assert filled_steps == [8 * 32] * 2, "the worker filled both slots"
        os.kill(run.training.runtime.pids()[0], signal.SIGKILL)
        run.go(steps=5_000)
        assert rollouts.restarts.count == 1
    assert len(learned) > 2
    assert learned_steps[:2] == np.cumsum(filled_steps).tolist(), "every step of both slots was learned from"
    for number, obs in enumerate(filled):
        np.testing.assert_array_equal(learned[number], obs, err_msg=f"slot {number} that the killed worker had filled")


def wait_until_idle(run: Run, quiet_s: float = 0.5) -> None:
    """Wait until no worker has stepped an env for a while: their slots are full."""
    beat, deadline = run.training.arena["heartbeat"][:, BEAT], time.perf_counter() + 30
    before, since = beat.copy(), time.perf_counter()
    while time.perf_counter() - since < quiet_s or not before.all():
        assert time.perf_counter() < deadline
        time.sleep(0.05)
        if not np.array_equal(beat, before):
            before, since = beat.copy(), time.perf_counter()


def dqn(**more: Any) -> TrainConfig:
    settings = {
        "algo": "dqn",
        "env": "CartPole-v1",
        "n_envs": 8,
        "group_size": 2,
        "num_workers": 2,
        "learning_starts": 200,
        "batch_size": 32,
        "n_eval_episodes": 0,
        "quiet": True,
        "seed": 3,
    }
    return TrainConfig.from_flat(**{**settings, **more})


def poison_ahead(replay: Replay, share: Share, rows: int) -> None:
    """Fill the next rows of a worker with NaN, which it must overwrite before they are learned from."""
    for group in range(share.first_group, share.first_group + share.groups):
        columns = replay.shape.columns(group, 1)
        for row in range(int(replay.head[group]) + 1, int(replay.head[group]) + 1 + rows):
            replay._arrays["reward"][row % replay.shape.rows, columns] = np.nan
            replay._arrays["obs/obs"][row % replay.shape.rows, columns] = np.nan


def test_replay_rows_torn_by_a_killed_worker_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, gather, drawn = ReplayStream._submit, Replay.gather, [0]

    def poisoned(self: ReplayStream, share: Share) -> None:
        if not self._requests[share.worker]:
            poison_ahead(self._ingest.replay, share, self._budget.rows)
        submit(self, share)

    def checked(self: Replay, item: Any) -> Any:
        batch = gather(self, item)
        drawn[0] += 1
        for tensor in (batch.reward, batch.obs["obs"], batch.next_obs["obs"]):
            assert not np.isnan(tensor).any(), "an incomplete row was learned from"
        return batch

    monkeypatch.setattr(Replay, "gather", checked)
    settings = dqn(schedule="async", samples_per_insert=4.0, prioritized=True, n_steps=32, buffer_size=2000)
    monkeypatch.setattr(ReplayStream, "_submit", poisoned)
    with Run(settings) as run:
        with killing(run, kills=3, every_steps=800) as killed:
            summary = go_until_replaced(run, 3)
        assert len(killed) == 3
        assert summary.restarts == 3
        assert drawn[0] > 100
        assert np.isfinite(run.training.weights.vector.numpy()).all()


@pytest.mark.parametrize("env", ["CartPole-v1", "paceline/TicTacToe-v0"])
def test_in_batches_dqn_is_the_same_as_without_the_deaths(env: str) -> None:
    games = {"opponents": {"random": 0.2, "self": 0.8}, "opponent_sampling": "hardest", "snapshot_every": 100}
    settings = dqn(env=env, total_timesteps=3000, **(games if "/" in env else {}))
    with Run(settings) as run:
        expected = run.go()
    with Run(settings) as run, killing(run, kills=3, every_steps=500):
        found = run.go()
    assert found.restarts >= 1
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


def test_a_death_in_the_first_batch_does_not_change_the_weights() -> None:
    settings = dqn(total_timesteps=600, episodes_per_batch=8)
    with Run(settings) as run:
        expected = run.go()
    with Run(settings) as run:
        os.kill(run.training.runtime.pids()[1], signal.SIGKILL)
        found = run.go()
    assert found.restarts == 1
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)
