"""One thread per env, each free-running: for envs that wait (for a simulator or network) rather than compute.

    thread       makes, resets, steps and closes one env (a `SingleEnvs` of one), and writes its column
    caller       wakes all threads and waits for the slowest; meanwhile it records which env it waits for

The order in which threads finish does not affect results: each column has one writer. With many envs relative to the
waiting time of a step, `ThreadedEnvs` is faster: there the caller does once for all envs what each thread does here for
its own (docs/adr/0011-threads-for-waiting-envs.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from paceline.envs.block import BlockSetup, FinalObs, History, Watch, require_distinct
from paceline.envs.env_thread import TaskOutcome, Team, outcome_of, result_of
from paceline.envs.extras import Readings
from paceline.envs.group import SingleEnvs
from paceline.envs.make import describe
from paceline.memory.rows import Row
from paceline.memory.worker_status import BEAT, ENV, FIRST, SPAN, spare

LOOK_S = 0.1
"""Seconds between two checks of which env is being waited for."""
_log = logging.getLogger(__name__)


class ThreadPerEnv:
    """Owns n single envs, and a thread for each.

    Args:
        setup: The envs. `setup.place` chooses the core to bind the threads to.
    """

    def __init__(self, setup: BlockSetup) -> None:
        n, extras, line = setup.n, setup.spec.extras, setup.line
        self.episode = setup.episode
        self.readings = Readings(extras, n, str) if extras else None
        self.lines = [spare() for _ in range(n)]
        """Status line of each thread (current env, heartbeat); the worker's own line has room for one env only."""
        self.halted = False
        """True when the results are no longer needed; long operations check it."""
        self.first_env, self._line, self._seen = setup.first_env, spare() if line is None else line, [0] * n
        self._team = Team(n + 1, f"envs-{self.first_env}", setup.place)
        self.envs: list[SingleEnvs] = []
        """Blocks of one."""
        try:
            for i in range(n):  # one after another, because envs may count ports or licences
                number, episode = self.first_env + i, self.episode[_only(i)]
                one = replace(setup, first_group=number, groups=1, group_size=1, episode=episode, line=self.lines[i])
                self.envs.append(self._ask(i, partial(SingleEnvs, one)))
                if self.readings is not None and (readings := self.envs[i].readings) is not None:
                    self.readings.share_columns(_only(i), readings)
                self._line[BEAT] += 1
            require_distinct([env for own in self.envs for env in own.envs])
        except BaseException:
            self.close()
            raise

    def each(self, do: Callable[[int], Any]) -> list[Any]:
        """Run `do(i)` in the thread of every env i; blocks for the slowest and returns the results in order.

        Raises:
            Exception: The exception of the lowest-numbered env that failed.
        """
        outcomes: list[TaskOutcome] = [(None, None)] * len(self.envs)

        def one(i: int) -> None:
            outcomes[i] = outcome_of(partial(do, i))

        self._team.settle()
        self.halted = False
        self._note(self.first_env, len(self.envs))
        try:
            self._team.begin([*(partial(one, i) for i in range(len(self.envs))), None])
            self._team.finish(LOOK_S, self._look)
        except BaseException:
            self.halted = True
            raise
        self._line[SPAN] = 0
        return [result_of(outcome) for outcome in outcomes]

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self.each(lambda i: self.envs[i].reset(row.at(_only(i))))

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended envs start their next episode. See `EnvBlock.step`."""
        finals = self.each(lambda i: self.envs[i].step(action[_only(i)], row.at(_only(i)), after.at(_only(i))))
        return [(i, obs) for i, own in enumerate(finals) for _, obs in own]

    def restore(self, histories: Sequence[History], row: Row, _watch: Watch | None = None, /) -> list[int]:
        """Replay the episodes of all envs in parallel. See `EnvBlock.restore`.

        There is no watch: blocks that pass one, such as `ShapedEnvs`, are not built around free-running envs.
        """
        restarted = self.each(lambda i: self.envs[i].restore(histories[_only(i)], row.at(_only(i))))
        return [i for i, own in enumerate(restarted) if own]

    def dump(self) -> list[bytes]:
        """Pickle the envs; one entry per env. See `EnvBlock.dump`."""
        return [entry for i, own in enumerate(self.envs) for entry in self._ask(i, own.dump)]

    def close(self) -> None:
        """Close the envs and end the threads. May be called twice, and while a thread is still stepping."""
        self.halted = True
        self._team.look_for_stuck()
        while self.envs:
            own = self.envs.pop()
            try:
                self._ask(len(self.envs), own.close)
            except TimeoutError as error:
                _log.warning("env %d raised in close: %s", self.first_env + len(self.envs), describe(error))
        self._team.end()

    def _ask(self, i: int, job: Callable[[], Any]) -> Any:
        """Run a job in one thread and return its result."""
        self._note(self.first_env + i, 1)
        outcome = self._team.ask(i, job, LOOK_S, self._look)
        self._line[SPAN] = 0
        return result_of(outcome)

    def _look(self) -> None:
        """Record which env is being waited for; move the heartbeat once all busy threads have moved theirs."""
        working = [i for i, line in enumerate(self.lines) if line[SPAN]]
        still = [i for i in working if self.lines[i][BEAT] == self._seen[i]]
        if still:
            self._note(self.first_env + still[0], 1)
        elif working:
            self._seen = [int(line[BEAT]) for line in self.lines]
            self._line[BEAT] += 1

    def _note(self, first: int, span: int) -> None:
        """Record these envs as being waited for."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = first, 0, span


def _only(i: int) -> slice:
    return slice(i, i + 1)
