"""Replacement of lost workers: limits, pauses, notes, and envs that are restored or reset."""

from __future__ import annotations

from typing import Any, cast

import pytest

from paceline.errors import WorkerDied, WorkerHung
from paceline.runtime.protocol import Reply
from paceline.train.restarts import MAX_IN_A_ROW, Recovery, Restarts


class LosingRuntime:
    """A runtime of two workers. `wait` loses worker 1 `losses` times; the first `deaths` new workers die at once."""

    num_workers = 2

    def __init__(self, deaths: int = 0, losses: int = 0) -> None:
        self.deaths, self.losses, self.commands = deaths, losses, list[str]()
        self.causes: list[str] = []
        self.submitted: list[tuple[int, str, tuple[Any, ...]]] = []

    def submit(self, worker: int, call: Any, *args: Any) -> Reply[Any]:
        self.submitted.append((worker, call.__name__, args))
        reply: Reply[Any] = Reply(worker, call.__name__)
        reply.put("ab"[worker])
        return reply

    def submit_all(self, call: Any, *args: Any) -> list[Reply[Any]]:
        return [self.submit(worker, call, *args) for worker in range(2)]

    def wait(self, replies: list[Reply[Any]], *, all: bool) -> list[Reply[Any]]:  # noqa: A002
        if self.losses:
            self.losses -= 1
            raise WorkerDied("gone.", 1, cause=self.causes.pop() if self.causes else "")
        return replies

    def respawn(self, worker: int, call: Any, *args: Any) -> Any:
        self.commands.append(call.__name__)
        if self.deaths:
            self.deaths -= 1
            raise WorkerDied("again.", worker)
        return call(self, *args)


def reset(job: Any) -> None:
    """The first call of a new worker whose envs start new episodes."""


def restore(job: Any, histories: list[int]) -> list[int]:
    """The first call of a new worker whose envs are restored; returns the envs that could not be."""
    return histories


def collect(job: Any, step: int) -> str:
    """The call that is lost. Never executed, because the runtime has the results."""
    raise NotImplementedError


def restarts_with(deaths: int = 0) -> Restarts[Any]:
    runtime: Any = LosingRuntime(deaths)
    return Restarts(runtime)


class Recovering:
    """Recovery of worker 1, which has the envs 4 to 7."""

    def __init__(self, runtime: LosingRuntime) -> None:
        self.new_episodes: list[int] = []
        self._runtime = runtime

    def respawn_restored(self, worker: int) -> list[int]:
        failed: list[int] = self._runtime.respawn(worker, restore, [])
        return failed

    def respawn_reset(self, worker: int) -> list[int]:
        self._runtime.respawn(worker, reset)
        return [4, 5, 6, 7]

    def forget_episodes(self, envs: list[int]) -> None:
        self.new_episodes += envs


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the pauses, which are not slept."""
    asked: list[float] = []
    monkeypatch.setattr("paceline.train.restarts.time.sleep", asked.append)
    return asked


def test_a_new_worker_executes_its_first_call() -> None:
    restarts = restarts_with()
    assert restarts.replace(WorkerDied("gone.", 1), restore, [3]) == [3]
    assert restarts.count == 1


def test_a_worker_that_dies_at_start_is_replaced_again() -> None:
    restarts = restarts_with(deaths=2)
    restarts.replace(WorkerDied("gone.", 1), reset)
    assert restarts.count == 3
    assert len(restarts.notes()) == 3


def test_too_many_deaths_in_a_row_raise_and_completed_calls_reset_the_count() -> None:
    restarts = restarts_with()
    for _ in range(3 * MAX_IN_A_ROW):
        restarts.replace(WorkerDied("gone.", 0), reset)
        restarts.succeeded(0)
    for _ in range(MAX_IN_A_ROW):
        restarts.replace(WorkerDied("gone.", 0), reset)
    restarts.replace(WorkerDied("gone.", 1), reset)  # another worker
    with pytest.raises(WorkerDied, match=f"gone.\nIt was replaced {MAX_IN_A_ROW} times in a row"):
        restarts.replace(WorkerDied("gone.", 0), reset)


def finish(recovery: Recovery, losses: int, most: int = 3) -> tuple[Restarts[Any], LosingRuntime, Recovering]:
    runtime = LosingRuntime(losses=losses)
    envs = Recovering(runtime)
    restarts: Restarts[Any] = Restarts(cast(Any, runtime), recovery, most)
    assert restarts.finish(restarts.start(collect, 8), envs) == ["a", "b"]
    return restarts, runtime, envs


@pytest.mark.parametrize("causes", [["", "", ""], ["hung, at env 6", "", "hung, at env 6"], ["7", "7", "-11"]])
def test_envs_of_a_new_worker_are_restored(causes: list[str]) -> None:
    runtime = LosingRuntime(losses=3)
    runtime.causes = causes
    envs = Recovering(runtime)
    restarts: Restarts[Any] = Restarts(cast(Any, runtime))
    restarts.finish(restarts.start(collect, 8), envs)
    assert (runtime.commands, envs.new_episodes, restarts.restarted) == (["restore"] * 3, [], 0)
    assert runtime.submitted[2:] == [(1, "collect", (8,))] * 3, "each new worker executes the call again"


def test_repeated_losses_with_one_cause_end_in_new_episodes(waits: list[float]) -> None:
    runtime = LosingRuntime(losses=3)
    runtime.causes = ["-11, at env 6"] * 3
    envs = Recovering(runtime)
    restarts: Restarts[Any] = Restarts(cast(Any, runtime))
    restarts.finish(restarts.start(collect, 8), envs)
    assert (runtime.commands, envs.new_episodes) == (["restore", "restore", "reset"], [4, 5, 6, 7])
    assert (restarts.count, restarts.restarted) == (3, 4)
    assert waits == [0.25, 0.5]
    assert ("worker 1: envs 4-7 started new episodes.", "") in restarts.notes()


def test_recovery_restart_resets_envs_and_recovery_fail_replaces_no_worker() -> None:
    restarts, runtime, envs = finish("restart", losses=1)
    assert (runtime.commands, envs.new_episodes, restarts.restarted) == (["reset"], [4, 5, 6, 7], 4)
    with pytest.raises(WorkerDied, match=r"gone.\nIt is not replaced: recovery is `fail`"):
        finish("fail", losses=1)


def test_pauses_double_and_the_final_error_has_the_counts(waits: list[float]) -> None:
    runtime: Any = LosingRuntime()
    restarts: Restarts[Any] = Restarts(runtime, "exact", 9)
    for _ in range(9):
        restarts.replace(WorkerDied("gone.", 0), reset)
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    restarts.replace(WorkerDied("gone.", 1), reset)
    with pytest.raises(
        WorkerDied, match=r"replaced 9 times in a row.*\(10 in all: worker 0: 9, worker 1: 1\).*--max-restarts"
    ):
        restarts.replace(WorkerDied("gone.", 0), reset)


def test_the_log_gets_the_stack_and_the_terminal_one_line() -> None:
    restarts = restarts_with()
    restarts.replace(WorkerHung("silent.", 1, "Its stack:\nhere"), reset)
    assert restarts.notes() == [("silent. It is replaced; training continues.", "Its stack:\nhere")]
