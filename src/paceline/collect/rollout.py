"""The collector: steps a worker's envs with its own copy of the policy and fills their slots.

    actor(obs[t]) -> head.sample -> envs.step -> obs[t+1]        T times, then the values that bootstrapping needs

It runs in a worker, or inline in the driver: the same object either way. Nothing here waits for anyone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect import noise
from paceline.collect.finite import FiniteRollouts
from paceline.collect.times import CollectTimes
from paceline.envs.group import EnvBlock, History
from paceline.memory.lines import BEAT, STOP
from paceline.memory.rows import Row
from paceline.memory.slots import FinalSlot, Slots
from paceline.nets.actor import Actor
from paceline.ops.distributions import ActionHead


class RolloutCollector:
    """Collects T steps of `groups` groups at a time. Owns the envs; the slots are the arena's."""

    def __init__(
        self,
        envs: EnvBlock,
        slots: Sequence[Slots],
        actor: Actor,
        group_actor: Actor,
        head: ActionHead,
        *,
        seed: int,
        first_group: int,
        groups: int,
        heartbeat: NDArray[np.int64],
        finite: FiniteRollouts | None = None,
    ) -> None:
        """Own these groups.

        Args:
            envs: The envs of all the groups.
            slots: Sets of slots for every group of the run; this collector keeps to its own columns.
            actor: The policy over all its groups.
            group_actor: The policy over one group, for final observations.
            head: Turns policy outputs and noise into actions.
            seed: The run's seed.
            first_group: The first group it owns.
            groups: How many it owns.
            heartbeat: The worker's line: moved on by the first reset and by every row; says when to break off.
            finite: Refuses rollouts with numbers that are none.
        """
        shape = slots[0].shape
        self._envs, self._actor, self._group_actor, self._head = envs, actor, group_actor, head
        self._seed, self._first_group, self._size = seed, first_group, shape.group_size
        self._sets = [
            (one.rows(first_group, groups), [one.final_slot(first_group + g) for g in range(groups)]) for one in slots
        ]
        # What the envs show between rollouts. With several sets any of them may be waiting to be learned from, so that
        # a reset must not write there.
        count = groups * self._size
        self._between = self._sets[0][0][-1] if len(slots) == 1 else Row.blank(shape.spec, count)
        self._noise = np.empty((shape.n_steps, count, shape.spec.action.noise_size), np.float32)
        self._heartbeat, self._finite = heartbeat, finite
        self._ask, self._rest = getattr(actor, "ask", None), getattr(actor, "rest", None)
        self._ahead = getattr(envs, "ahead", None)

    def reset(self) -> None:
        """Begin every env's first episode."""
        self._envs.reset(self._between)
        self._heartbeat[BEAT] += 1

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Put every env where it was; returns the envs (of the run) that had to begin a new episode.

        Args:
            histories: One per env of the run; the collector takes its own.
        """
        first = self._first_group * self._size
        mine = histories[first : first + self._noise.shape[1]]
        strayed = self._envs.restore(mine, self._between)
        self._heartbeat[BEAT] += 1
        return [first + i for i in strayed]

    def dump(self) -> list[bytes]:
        """The envs as they are, pickled; one entry per env."""
        return self._envs.dump()

    def collect(self, step: int, into: int = 0) -> CollectTimes:
        """Fill this collector's slots of set `into` with the rollout that begins at `step` (of each env)."""
        began, rows = perf_counter(), self.rows(step, into)
        while True:
            try:
                next(rows)
            except StopIteration as done:
                env_s, total_s = float(done.value), perf_counter() - began
                return CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s)

    def rows(self, step: int, into: int = 0) -> Generator[None, None, float]:
        """The same row by row; returns the seconds that the envs took.

        Where the policy is elsewhere it yields after every question, and where envs wait while they step: for somebody
        to do something else meanwhile.
        """
        (rows, finals_of), actor, sample, envs = self._sets[into], self._actor, self._head.sample, self._envs
        self._begin(step, into)
        env_s = 0.0
        for t, (row, after, row_noise) in enumerate(zip(rows, rows[1:], self._noise, strict=False)):
            if self._ask is not None:
                self._ask(row.obs)
                yield
            params, value = actor(row.obs)
            action, log_prob = sample(params, row_noise, row.mask)
            row.value[...] = value
            row.action[...] = action
            row.log_prob[...] = log_prob
            before_step = perf_counter()
            if self._ahead is not None:
                self._ahead(action)
                env_s += perf_counter() - before_step
                yield
                before_step = perf_counter()
            finals = envs.step(action, row, after)
            env_s += perf_counter() - before_step
            for i, obs in finals:
                finals_of[i // self._size].add(t, self._first_group * self._size + i, obs)
            self._heartbeat[BEAT] += 1
            if self._heartbeat[STOP]:
                break  # the run is over, and nobody will look at this
        self._bootstrap(rows[-1], finals_of)
        if self._finite is not None and not self._heartbeat[STOP]:
            self._finite.check(step, into, finals_of)
        if self._between is not rows[-1]:
            self._between.show(rows[-1])
        if self._rest is not None:
            self._rest()
        return env_s

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()

    def _begin(self, step: int, into: int) -> None:
        """Go on from what the envs show, draw the noise, forget old finals."""
        rows, finals = self._sets[into]
        rows[0].show(self._between)
        for final in finals:
            final.count[0] = 0
        noise.draw(
            self._head,
            self._noise,
            seed=self._seed,
            first_group=self._first_group,
            group_size=self._size,
            step=step,
        )

    def _bootstrap(self, last: Row, finals: Sequence[FinalSlot]) -> None:
        """Values of the row after the last, and of the last real observations of truncated episodes."""
        last.value[...] = self._actor(last.obs)[1]
        for final in finals:
            # In whole groups: a forward's last bits depend on its batch size.
            count = int(final.count[0])
            for start in range(0, count, self._size):
                chunk = min(self._size, count - start)
                padded = {name: _padded(leaf[start : start + chunk], self._size) for name, leaf in final.obs.items()}
                final.value[start : start + chunk] = self._group_actor(padded)[1][:chunk]


def _padded(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """At least one row, repeated to `size` rows."""
    return rows if len(rows) == size else np.concatenate([rows, rows[:1].repeat(size - len(rows), 0)])
