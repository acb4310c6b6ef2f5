"""Free-running envs: one thread per env runs the policy and steps the env for T rows, with no barrier between envs.

    in every env's thread      row actor(obs[t]) -> head.choose -> env.step -> obs[t+1]        T times

This suits envs whose `step` waits (I/O, sleep) for varying times: a slow step delays only its own env. The result does
not depend on the order in which threads run: the noise is drawn in advance, each thread writes only its env's columns,
and a row actor computes one row of the group's forward pass with the same bits as the pass over the whole group.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.memory.rows import Row
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import FinalSlot
from paceline.memory.worker_status import BEAT, STEPS, STOP
from paceline.nets.actor import DeferredValueActor
from paceline.ops.distributions import ActionHead
from paceline.spec import EnvSpec

Floats = NDArray[np.float32]

STEP_S = 2e-5
"""CPU time of a thread per step, without the env and the policy (docs/adr/0011-threads-for-waiting-envs.md)."""
COLD = 4
"""A policy call with cold CPU caches takes this many times as long as the repeated call that is timed here."""
TRIED = 20
"""Timed policy calls."""


def pays(actor: DeferredValueActor, spec: EnvSpec, n: int, wait_s: float) -> bool:
    """Whether free-running threads are faster for n envs: the CPU work of all threads must fit into one env's wait.

    Each thread does per env what lockstep collection does once for all envs, and a policy call for one env costs as
    much as a call for its whole group.

    Args:
        actor: The policy.
        spec: Spec of the envs.
        n: Envs of the worker.
        wait_s: Seconds that one env step waits.
    """
    if n * STEP_S >= wait_s:
        return False
    row_actor, obs = actor.row_actor(0), {leaf.name: np.zeros((1, *leaf.shape), leaf.dtype) for leaf in spec.obs}
    times = []
    for _ in range(TRIED):
        began = perf_counter()
        row_actor(obs)
        times.append(perf_counter() - began)
    # The minimum: other load on the machine can only make a call slower.
    return n * (STEP_S + COLD * min(times)) < wait_s


class FreeRunning:
    """Collects the rows of free-running envs, which have one thread each.

    Args:
        envs: The envs.
        actor: The policy of their groups.
        head: Turns policy outputs and noise into actions.
        shape: Shape of the slots.
        line: The worker's status line. A nonzero `STOP` ends collection early.
    """

    def __init__(
        self, envs: ThreadPerEnv, actor: DeferredValueActor, head: ActionHead, shape: SlotShape, line: NDArray[np.int64]
    ) -> None:
        self.envs, self._choose, self._size, self._line = envs, head.choose, shape.group_size, line
        self._row_actors = [actor.row_actor(i % shape.group_size) for i in range(len(envs.envs))]
        # Two private one-env rows per thread, used in turn. Creating views of the env's columns in every step would
        # cost more than copying, and keeping views of all rows would take more memory than the rows themselves.
        self._row_pairs = [(Row.blank(shape.spec, 1), Row.blank(shape.spec, 1)) for _ in self._row_actors]
        self._last = 0
        """Threads stop after this row. A failure lowers it to its own row, so that a failure in an earlier row still
        shows, and the same error is raised as in lockstep."""

    def collect(self, own: Row, params: Floats, noise: Floats, finals: Sequence[FinalSlot]) -> float:
        """Fill the columns `own`. Blocks until all threads are done.

        Args:
            own: `[T, n]`; fields that include the row after the last step, such as observations, `[T+1, n]`.
            params: `[T, n, P]`; receives the parameters of the action distributions.
            noise: `[T, n, N]`.
            finals: Receive the final observations of truncated episodes, one list per group.

        Returns:
            Seconds in `env.step`, averaged over the envs.

        Raises:
            Exception: The error of the env that failed first (lowest row, then lowest env), as in lockstep collection.
        """
        n_steps = self._last = len(params)
        failures: list[tuple[int, int, BaseException]] = []
        ended: list[tuple[int, int, dict[str, Any]]] = []
        line = self._line

        def drive(i: int) -> float:
            row_actor, choose = self._row_actors[i], self._choose
            step, beat = self.envs.envs[i].step, self.envs.lines[i]
            mine = slice(None), slice(i, i + 1)
            column, own_params, own_noise = own.at(mine), params[mine], noise[mine]
            env_s, t, (row, after) = 0.0, 0, self._row_pairs[i]
            row.show(column.at(0))
            try:
                for t in range(n_steps):
                    if t > self._last or line[STOP] or self.envs.halted:
                        break
                    own_params[t] = now = row_actor(row.obs)
                    column.action[t] = action = choose(now, own_noise[t], row.mask)
                    before_step = perf_counter()
                    last_obs = step(action, row, after)
                    env_s += perf_counter() - before_step
                    column.tell(row, t)
                    column.show(after, t + 1)
                    for _, obs in last_obs:
                        ended.append((t, i, obs))
                    beat[BEAT] += 1
                    line[STEPS] += 1  # by several threads: one may be lost now and then, and it is only displayed
                    row, after = after, row
            except BaseException as error:
                self._last = min(self._last, t)
                failures.append((t, i, error))
            return env_s

        times = self.envs.each(drive)
        if failures:
            raise min(failures, key=lambda failure: failure[:2])[2]
        for t, i, obs in sorted(ended, key=lambda entry: entry[:2]):
            finals[i // self._size].add(t, self.envs.first_env + i, obs)
        return float(np.mean(times))
