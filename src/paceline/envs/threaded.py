"""Envs that wait rather than compute, stepped in parallel by the threads of one worker.

    1. the caller wakes the threads (`ahead`), and may do something else
    2. every thread steps its own envs, and resets those that ended; the outcome stays in the env's `_Ahead`
    3. when all are done (`step`), `SingleEnvs` walks over the envs as ever, and finds each step taken already

One thread owns an env from its construction to its end. The order in which threads finish does not affect results: in
step 3 the caller writes the rows in env order. Measured alternatives: docs/adr/0011-threads-for-waiting-envs.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import ActionMap, FinalObs, History, Watch
from paceline.envs.env_thread import TaskOutcome, Team, ThreadTask, outcome_of, result_of
from paceline.envs.extras import Readings
from paceline.envs.group import SingleEnvs
from paceline.envs.make import Env, EnvMaker
from paceline.envs.seeding import episode_seed
from paceline.memory.rows import Row
from paceline.memory.worker_status import StatusLine, WorkerStatus
from paceline.spec import MASK_KEY, EnvSpec
from paceline.system.one_core import roaming

LONG_S = 0.5
"""Waits beyond this are worth a note of who is waited for."""


class ThreadedEnvs:
    """Steps n single envs, up to `threads` of them at the same time. Blocks until the slowest is done.

    Args:
        recipe: How to make an env.
        spec: What `recipe.probe()` found.
        seed: The run's.
        first_env: Index in the run of the block's first env.
        n: How many.
        episode: [n] the block keeps the episode numbers here.
        threads: At most this many envs at once, 2 or more.
        line: The worker's line of shared memory: says which env is waited for.
        place: A number that other processes on this machine do not have, for the core to begin on; the same for
            all blocks of this one. By default from `first_env`.
    """

    def __init__(
        self,
        recipe: EnvMaker,
        spec: EnvSpec,
        *,
        seed: int,
        first_env: int,
        n: int,
        episode: NDArray[np.int64],
        threads: int,
        line: StatusLine = None,
        place: int | None = None,
    ) -> None:
        self.episode = episode
        self._marks, self._n = WorkerStatus(line, first_env), n
        self._actions = ActionMap(spec)
        owners = min(threads, n)
        # The caller, who is the last of a team, owns none: it has other blocks to see to.
        team = self._team = Team(owners + 1, f"envs-{first_env}", first_env // n if place is None else place)
        self._under_way, self._busy = False, list[int]()
        made: list[_Ahead] = []

        class Recipe:
            """Makes the envs one after another, as those that count ports or licences expect, each by its owner."""

            def make(self, *, who: str = "env") -> Any:
                i = len(made)
                ask = partial(team.ask, i * owners // n)
                made.append(_Ahead(ask, partial(recipe.make, who=who), partial(seed_of, i)))
                return made[-1]

        def seed_of(i: int, later: int) -> int:
            return episode_seed(seed, first_env + i, int(episode[i]) + later)

        try:
            self._envs = SingleEnvs(Recipe(), spec, seed=seed, first_env=first_env, n=n, episode=episode, line=line)
        except BaseException:
            self._team.end()
            raise
        self._ahead: list[Any] = made
        shares = [[env for i, env in enumerate(made) if i * owners // n == owner] for owner in range(owners)]
        self._step_jobs: list[ThreadTask | None] = [
            *(partial(_each, share, _Ahead.step_ahead) for share in shares),
            None,
        ]
        self._reset_jobs: list[ThreadTask | None] = [
            *(partial(_each, share, _Ahead.reset_ahead) for share in shares),
            None,
        ]

    def reset(self, row: Row) -> None:
        """Begin the episodes that `episode` names; writes `row.obs` and `row.mask`."""
        self._under_way = False
        self._marks.at(0, self._n)
        self._team.begin(self._reset_jobs)
        self._wait()
        self._envs.reset(row)

    def ahead(self, action: NDArray[Any]) -> None:
        """Have every env take its action, and return at once; `step` with the same actions takes what came of it."""
        for env, own in zip(self._ahead, self._actions.each(action), strict=True):
            env.action = own
        self._marks.join(self._n)  # before they begin: an env that takes the process along is named all the same
        self._team.begin(self._step_jobs)
        self._under_way = True

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended ones begin their next episode. See `EnvBlock.step`."""
        if not self._under_way:
            self.ahead(action)
        self._under_way = False  # whatever happens now: after an interrupt the next step begins anew
        others = self._wait()
        finals = self._envs.step(action, row, after)
        self._marks.put(others)
        return finals

    @property
    def readings(self) -> Readings | None:
        """The newest extras, where the envs have some."""
        return self._envs.readings

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """Replay every env's episode, one env after another. See `EnvBlock.restore`."""
        self._under_way = False
        restarted = self._envs.restore(histories, row, watch)
        for i, (ahead, env) in enumerate(zip(self._ahead, self._envs.envs, strict=True)):
            if env is not ahead:  # it came as it was, pickled
                ahead.env = env
                self._envs.put(i, ahead)
        return restarted

    def dump(self) -> list[bytes]:
        """One entry per env. See `EnvBlock.dump`."""
        return self._envs.dump()

    def close(self) -> None:
        """Close the envs and end the threads. May be called twice, and while a thread is still stepping."""
        self._team.look_for_stuck()
        self._envs.close()
        self._team.end()

    def _wait(self) -> range:
        """Until all threads have done their jobs; returns the worker's other envs that are at work."""
        self._marks.join(self._n)  # once more: others may have been named alone since, for being slow
        others = self._marks.besides(self._n)
        self._team.finish(LONG_S, self._name_the_slow)
        return others

    def _name_the_slow(self) -> None:
        """Say which env is waited for; where a thread has gone on to its next, that is a sign of life."""
        busy = [i for i, env in enumerate(self._ahead) if env.busy]
        if busy:
            self._marks.at(busy[0])
        if busy != self._busy:
            self._busy = busy
            self._marks.beat()


class _Ahead:
    """One env as `SingleEnvs` sees it: what it is asked for has happened already, or happens now in its own thread."""

    def __init__(
        self, owner: Callable[[Callable[[], Any]], TaskOutcome], make: Callable[[], Env], seed_of: Callable[[int], int]
    ) -> None:
        """Make the env.

        Args:
            owner: Has a call made in the env's thread.
            make: Makes it.
            seed_of: The seed of an episode, counted from the one under way.
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
        """In its thread: take `action`, and begin the next episode if that was the end of one."""
        self._begun = None
        self._stepped = outcome_of(self._step_and_begin)

    def reset_ahead(self, later: int = 0) -> None:
        """In its thread: begin an episode."""
        seed = self._seed_of(later)
        self._begun = (seed, outcome_of(partial(roaming, self.env.reset, seed=seed)))

    def step(self, action: Any) -> Any:
        """As the env's own; in its thread now, where it was not stepped ahead."""
        outcome, self._stepped = self._stepped, None
        return result_of(outcome or self.owner(partial(self.env.step, action)))

    def reset(self, *, seed: int) -> Any:
        """As the env's own; in its thread now, where it was not reset ahead."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == seed:
            return result_of(begun[1])
        return result_of(self.owner(partial(self.env.reset, seed=seed)))

    def _step_and_begin(self) -> Any:
        result = self.env.step(self.action)
        match result:
            case (obs, reward, terminated, truncated, info) if _either(terminated, truncated):
                if not terminated:  # what is seen here is still wanted, and a reset may write over it
                    if isinstance(info, dict) and MASK_KEY in info:
                        info = {**info, MASK_KEY: copy.deepcopy(info[MASK_KEY])}
                    result = (copy.deepcopy(obs), reward, terminated, truncated, info)
                self.reset_ahead(1)
        return result

    def close(self) -> None:
        """As the env's own."""
        result_of(self.owner(self.env.close))

    def __reduce__(self) -> Any:
        """Pickled it is the env alone, so that a checkpoint does not know of threads."""
        return _itself, (self.env,)


def _each(envs: Sequence[_Ahead], do: Callable[[_Ahead], None]) -> None:
    for env in envs:
        env.busy = True
        do(env)
        env.busy = False


def _either(terminated: Any, truncated: Any) -> bool:
    """Whether a step says so; what is no truth value is for `SingleEnvs` to complain of."""
    try:
        return bool(terminated or truncated)
    except Exception:
        return False


def _itself(env: Env) -> Env:
    return env
