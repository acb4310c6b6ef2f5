"""Envs that wait, each at its own pace: an env's thread acts for it and steps it, row after row, and waits for nobody.

    in every env's thread      seat(obs[t]) -> head.choose -> env.step -> obs[t+1]        T times

Nothing of it depends on who is ahead of whom: noise is drawn beforehand, an env's columns are its own, and a seat
computes an env's row of its group's forward, to the bits that it has when the whole group acts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.apart import EnvsApart
from paceline.memory.lines import BEAT, STOP
from paceline.memory.rows import Row
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import FinalSlot
from paceline.nets.actor import PatientActor
from paceline.ops.distributions import ActionHead
from paceline.spec import EnvSpec

Floats = NDArray[np.float32]

STEP_S = 2e-5
"""What a thread does around an env's step, without acting (docs/adr/0011-threads-for-waiting-envs.md)."""
COLD = 4
"""How many times as long acting takes when a core comes from something else."""
TRIED = 20
"""How often acting is tried."""


def pays(actor: PatientActor, spec: EnvSpec, n: int, wait_s: float) -> bool:
    """Whether n envs, whose steps wait for so long, gain by it: all that their threads do must fit into one wait.

    A thread does by itself what would otherwise be done for all envs at once, and acting for one env costs as much as
    acting for its group.
    """
    if n * STEP_S >= wait_s:
        return False
    seat, obs = actor.seat(0), {leaf.name: np.zeros((1, *leaf.shape), leaf.dtype) for leaf in spec.obs}
    times = []
    for _ in range(TRIED):
        began = perf_counter()
        seat(obs)
        times.append(perf_counter() - began)
    # The fastest: others on the machine make it take longer, nobody makes it shorter.
    return n * (STEP_S + COLD * min(times)) < wait_s


class OwnPace:
    """Collects the rows of envs that have a thread each.

    Args:
        envs: Those.
        actor: Of their groups.
        head: Turns policy outputs and noise into actions.
        shape: Of the slots.
        stop: The worker's line: says when to break off.
    """

    def __init__(
        self, envs: EnvsApart, actor: PatientActor, head: ActionHead, shape: SlotShape, stop: NDArray[np.int64]
    ) -> None:
        self.envs, self._choose, self._size, self._stop = envs, head.choose, shape.group_size, stop
        self._seats = [actor.seat(i % shape.group_size) for i in range(len(envs.envs))]
        # What an env shows and does in one step. To make views of its columns in every step would cost more than to
        # copy, and to keep views of all rows more memory than the rows themselves.
        self._pages = [(Row.blank(shape.spec, 1), Row.blank(shape.spec, 1)) for _ in self._seats]
        self._last = 0
        """The last row that is still wanted: after a failure those up to it, so that the first failure is found."""

    def collect(self, own: Row, params: Floats, noise: Floats, finals: Sequence[FinalSlot]) -> float:
        """Fill the columns `own`; returns the seconds that the steps of an env took.

        Args:
            own: `[T, n]`, and where row T counts too `[T+1, n]`.
            params: `[T, n, P]` gets the distributions that were acted from.
            noise: `[T, n, N]`.
            finals: Get the last observations of truncated episodes, group by group.

        Raises:
            Exception: What an env raised, the same one as if all were stepped together.
        """
        n_steps = self._last = len(params)
        failures: list[tuple[int, int, BaseException]] = []
        ended: list[tuple[int, int, dict[str, Any]]] = []
        stop = self._stop

        def drive(i: int) -> float:
            seat, choose, step, beat = self._seats[i], self._choose, self.envs.envs[i].step, self.envs.lines[i]
            mine = slice(None), slice(i, i + 1)
            column, own_params, own_noise = own.at(mine), params[mine], noise[mine]
            env_s, t, (row, after) = 0.0, 0, self._pages[i]
            row.show(column.at(0))
            try:
                for t in range(n_steps):
                    if t > self._last or stop[STOP] or self.envs.halted:
                        break
                    own_params[t] = now = seat(row.obs)
                    column.action[t] = action = choose(now, own_noise[t], row.mask)
                    before_step = perf_counter()
                    last_obs = step(action, row, after)
                    env_s += perf_counter() - before_step
                    column.tell(row, t)
                    column.show(after, t + 1)
                    for _, obs in last_obs:
                        ended.append((t, i, obs))
                    beat[BEAT] += 1
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
