"""Steps envs that wait (sleep, I/O) in parallel, in threads of one worker.

    1. `ahead`: the caller wakes the threads, and may do something else meanwhile
    2. each thread steps its own envs and resets ended ones; the results are kept in the env's `_SteppedAhead` proxy
    3. `step`: when all threads are done, `SingleEnvs` iterates over the proxies, which return the kept results

An env is made, stepped and closed by the same thread. The order in which threads finish does not affect results: in
3 the caller writes the rows in env order. Measured alternatives: docs/adr/0011-threads-for-waiting-envs.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from paceline.envs.block import ActionMap, BlockSetup, FinalObs, History, Watch
from paceline.envs.env_thread import TaskOutcome, Team, ThreadTask, outcome_of, result_of
from paceline.envs.group import SingleEnvs
from paceline.envs.make import Env
from paceline.envs.seeding import episode_seed
from paceline.memory.rows import Row
from paceline.memory.worker_status import WorkerStatus
from paceline.spec import MASK_KEY
from paceline.system.one_core import roaming

LONG_S = 0.5
"""Seconds after which the worker's status line names the env that is being waited for."""


class ThreadedEnvs:
    """Steps n single envs, up to `threads` of them at the same time. Blocks until the slowest is done.

    Args:
        setup: The envs. `setup.place` chooses the core to bind the threads to.
        threads: Most envs to step at the same time, at least 2.
    """

    def __init__(self, setup: BlockSetup, threads: int) -> None:
        self.episode = setup.episode
        first_env, n = setup.first_env, setup.n
        self._status, self._n = WorkerStatus(setup.line, first_env), n
        self._actions = ActionMap(setup.spec)
        owners = min(threads, n)
        # The caller, which is the last owner of a team, owns no env: it has work for other blocks meanwhile.
        team = self._team = Team(owners + 1, f"envs-{first_env}", setup.place)
        self._under_way, self._busy = False, list[int]()
        made: list[_SteppedAhead] = []

        def make(*, who: str) -> Any:
            """Make each env in its own thread, one after another: envs may count ports or licences."""
            i = len(made)
            ask = partial(team.ask, i * owners // n)
            made.append(_SteppedAhead(ask, partial(setup.recipe.make, who=who), partial(seed_of, i)))
            return made[-1]

        def seed_of(i: int, later: int) -> int:
            return episode_seed(setup.seed, first_env + i, int(setup.episode[i]) + later)

        try:
            self._envs = SingleEnvs(setup, make)
        except BaseException:
            self._team.end()
            raise
        self._ahead: list[Any] = made
        self.readings = self._envs.readings
        shares = [[env for i, env in enumerate(made) if i * owners // n == owner] for owner in range(owners)]

        def jobs(do: Callable[[_SteppedAhead], None]) -> list[ThreadTask | None]:
            return [*(partial(_for_each, share, do) for share in shares), None]

        self._step_jobs, self._reset_jobs = jobs(_SteppedAhead.step_ahead), jobs(_SteppedAhead.reset_ahead)

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self._under_way = False
        self._status.at(0, self._n)
        self._team.begin(self._reset_jobs)
        self._wait()
        self._envs.reset(row)

    def ahead(self, action: NDArray[Any]) -> None:
        """Start a step of every env without waiting; `step` with the same actions then returns its results."""
        for env, own in zip(self._ahead, self._actions.each(action), strict=True):
            env.action = own
        self._status.join(self._n)  # before the threads start, so that an env that kills the process is named
        self._team.begin(self._step_jobs)
        self._under_way = True

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended envs start their next episode. See `EnvBlock.step`."""
        if not self._under_way:
            self.ahead(action)
        self._under_way = False  # already here, so that after an interrupt the next step starts the envs again
        others = self._wait()
        finals = self._envs.step(action, row, after)
        self._status.put(others)
        return finals

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """Replay every env's episode, one env after another. See `EnvBlock.restore`."""
        self._under_way = False
        restarted = self._envs.restore(histories, row, watch)
        for i, (ahead, env) in enumerate(zip(self._ahead, self._envs.envs, strict=True)):
            if env is not ahead:  # it was loaded from a pickle, without the proxy
                ahead.env = env
                self._envs.replace(i, ahead)
        return restarted

    def dump(self) -> list[bytes]:
        """Pickle the envs; one entry per env. See `EnvBlock.dump`."""
        return self._envs.dump()

    def close(self) -> None:
        """Close the envs and end the threads. May be called twice, and while a thread is still stepping."""
        self._team.look_for_stuck()
        self._envs.close()
        self._team.end()

    def _wait(self) -> range:
        """Block until all threads are done; returns the worker's other envs that are being stepped."""
        self._status.join(self._n)  # again, because slow envs of another block may have replaced the entry since
        others = self._status.besides(self._n)
        self._team.finish(LONG_S, self._name_the_slow)
        return others

    def _name_the_slow(self) -> None:
        """Write the env that is being waited for to the status line; move the heartbeat when other envs are busy."""
        busy = [i for i, env in enumerate(self._ahead) if env.busy]
        if busy:
            self._status.at(busy[0])
        if busy != self._busy:
            self._busy = busy
            self._status.beat()


class _SteppedAhead:
    """Proxy of one env for `SingleEnvs`: returns results computed in advance, or calls the env in its own thread."""

    def __init__(
        self, owner: Callable[[Callable[[], Any]], TaskOutcome], make: Callable[[], Env], seed_of: Callable[[int], int]
    ) -> None:
        """Make the env in its thread.

        Args:
            owner: Runs a function in the env's thread.
            make: Makes the env.
            seed_of: Returns the seed of the k-th episode after the current one.
        """
        self.owner, self._seed_of = owner, seed_of
        self.env: Env = result_of(owner(make))
        self.unwrapped = self.env.unwrapped
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.action: Any = None
        self.busy = False
        self._stepped: TaskOutcome | None = None
        self._begun: tuple[int, TaskOutcome] | None = None

    def step_ahead(self) -> None:
        """Runs in the env's thread: take `action`, and start the next episode if that ended the current one."""
        self._begun = None
        self._stepped = outcome_of(self._step_and_begin)

    def reset_ahead(self, later: int = 0) -> None:
        """Runs in the env's thread: start the current episode, or the k-th after it."""
        seed = self._seed_of(later)
        self._begun = (seed, outcome_of(partial(roaming, self.env.reset, seed=seed)))

    def step(self, action: Any) -> Any:
        """Return the result of `step_ahead`; without one, step the env in its thread now."""
        outcome, self._stepped = self._stepped, None
        return result_of(outcome or self.owner(partial(self.env.step, action)))

    def reset(self, *, seed: int) -> Any:
        """Return the result of `reset_ahead`; without one for this seed, reset the env in its thread now."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == seed:
            return result_of(begun[1])
        return result_of(self.owner(partial(self.env.reset, seed=seed)))

    def _step_and_begin(self) -> Any:
        result = self.env.step(self.action)
        match result:
            case (obs, reward, terminated, truncated, info) if _either(terminated, truncated):
                if not terminated:  # the final observation is still needed, and the reset may overwrite its array
                    if isinstance(info, dict) and MASK_KEY in info:
                        info = {**info, MASK_KEY: copy.deepcopy(info[MASK_KEY])}
                    result = (copy.deepcopy(obs), reward, terminated, truncated, info)
                self.reset_ahead(1)
        return result

    def close(self) -> None:
        """Close the env in its thread."""
        result_of(self.owner(self.env.close))

    def __reduce__(self) -> Any:
        """Pickle the env without its proxy, so that a checkpoint does not depend on the number of threads."""
        return _itself, (self.env,)


def _for_each(envs: Sequence[_SteppedAhead], do: Callable[[_SteppedAhead], None]) -> None:
    for env in envs:
        env.busy = True
        do(env)
        env.busy = False


def _either(terminated: Any, truncated: Any) -> bool:
    """Whether one of the flags is true; False for invalid flags, for which `SingleEnvs` raises the error."""
    try:
        return bool(terminated or truncated)
    except Exception:
        return False


def _itself(env: Env) -> Env:
    """Unpickle an env. Pickled envs in checkpoints refer to this function by name: do not rename it."""
    return env
