"""The collector: steps a worker's envs with its own copy of the policy and fills their slots.

    actor(obs[t]) -> head.choose -> envs.step -> obs[t+1]        T times, then values and log-probabilities in bulk

The same classes run in a worker process and inline in the driver. They wait for no other process.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect import noise
from paceline.collect.finite import FiniteRollouts
from paceline.collect.free_running import FreeRunning
from paceline.collect.inference_client import RemoteActor
from paceline.collect.times import CollectTimes
from paceline.envs.block import EnvBlock, History, ahead_of
from paceline.memory.rows import Row
from paceline.memory.slots import FinalSlot, Slots
from paceline.memory.worker_status import BEAT, STEPS, STOP
from paceline.nets.actor import Actor, DeferredValueActor
from paceline.ops.distributions import ActionHead
from paceline.runtime.protocol import InferenceChannel

SETTLED_STEPS, SETTLED_BYTES = 2048, 1 << 20
"""Limits on one bulk computation of values and log-probabilities, in env steps and in bytes of observations: large
enough that the cost per call is small, and small enough for the CPU cache."""


class RolloutCollector:
    """Collects T steps of the groups of one lane. Owns the envs; the slots are views of the arena."""

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
        free_running: FreeRunning | None = None,
    ) -> None:
        """Take ownership of the envs of these groups.

        Args:
            envs: The envs of all the groups.
            slots: Sets of slots for every group of the run; this collector writes only its own columns.
            actor: The policy over all its groups.
            group_actor: The policy over one group, for final observations.
            head: Turns policy outputs and noise into actions.
            seed: The run's seed.
            first_group: The first group it owns.
            groups: Number of groups it owns.
            heartbeat: The worker's status line. The first reset and every row increment `BEAT`; a nonzero `STOP` ends
                collection early.
            finite: Checks each rollout for NaN and infinite values.
            free_running: Collects the rows of free-running envs; None to step all envs in lockstep.
        """
        shape = slots[0].shape
        self._envs, self._actor, self._group_actor, self._head = envs, actor, group_actor, head
        self._seed, self._first_group, self._size = seed, first_group, shape.group_size
        self._sets = [
            (one.rows(first_group, groups), [one.final_slot(first_group + g) for g in range(groups)]) for one in slots
        ]
        self._columns = [one.columns(first_group, groups) for one in slots]
        # The envs' current observations between rollouts. With several sets of slots the learner may still have to read
        # any of them, so a reset must not write there and needs a row of its own.
        count = groups * self._size
        self._between = self._sets[0][0][-1] if len(slots) == 1 else Row.blank(shape.spec, count)
        self._noise = np.empty((shape.n_steps, count, shape.spec.action.noise_size), np.float32)
        self._params = np.zeros((shape.n_steps, count, shape.spec.action.param_size), np.float32)
        self._deferred = actor if isinstance(actor, DeferredValueActor) else None
        seen = sum(leaf.features for leaf in shape.spec.obs) if self._deferred is not None else 0
        self._settled = min(SETTLED_STEPS, SETTLED_BYTES // max(1, 4 * seen))
        self._heartbeat, self._finite, self._free_running = heartbeat, finite, free_running
        self.remote = actor if isinstance(actor, RemoteActor) else None
        """The actor, with central inference; None if the policy runs here."""
        self._ahead = ahead_of(envs)

    def reset(self) -> None:
        """Reset every env to its first episode."""
        self._envs.reset(self._between)
        self._heartbeat[BEAT] += 1

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Restore every env from its history.

        Args:
            histories: One per env of the run; the collector picks those of its own envs.

        Returns:
            Indices (in the run) of the envs that could not be restored and started a new episode.
        """
        first = self._first_group * self._size
        mine = histories[first : first + self._noise.shape[1]]
        restarted = self._envs.restore(mine, self._between)
        self._heartbeat[BEAT] += 1
        return [first + i for i in restarted]

    def dump(self) -> list[bytes]:
        """Pickle the envs in their current state; one entry per env."""
        return self._envs.dump()

    def rows(self, step: int, into: int = 0) -> Generator[None, None, float]:
        """Fill the slots of set `into` with the rollout that begins at `step` (of each env), as a generator.

        It returns the seconds spent in the envs. It yields so that the caller can do other work meanwhile: after each
        inference request (central inference), and after starting each step of envs that wait.
        """
        rows, finals_of = self._sets[into]
        self._begin(step, into)
        if self._free_running is None:
            env_s, count = 0.0, self._noise.shape[1]
            act = None if self._deferred is None else self._deferred.act
            # In lockstep: every env takes step t before any takes step t+1.
            for t, (row, after, params, row_noise) in enumerate(
                zip(rows, rows[1:], self._params, self._noise, strict=False)
            ):
                if self.remote is not None:
                    self.remote.ask(row.obs)
                    yield
                if act is not None:
                    params[...] = act(row.obs)
                else:
                    params[...], row.value[...] = self._actor(row.obs)
                row.action[...] = action = self._head.choose(params, row_noise, row.mask)
                before_step = perf_counter()
                if self._ahead is not None:
                    self._ahead(action)
                    env_s += perf_counter() - before_step
                    yield
                    before_step = perf_counter()
                finals = self._envs.step(action, row, after)
                env_s += perf_counter() - before_step
                for i, obs in finals:
                    finals_of[i // self._size].add(t, self._first_group * self._size + i, obs)
                self._heartbeat[BEAT] += 1
                self._heartbeat[STEPS] += count
                if self._heartbeat[STOP]:
                    break
        else:
            env_s = self._free_running.collect(self._columns[into], self._params, self._noise, finals_of)
        if not self._heartbeat[STOP]:  # otherwise the run is ending and nothing reads this rollout
            self._settle(self._columns[into], finals_of)
            if self._finite is not None:
                self._finite.check(step, into, finals_of)
        if self._between is not rows[-1]:
            self._between.show(rows[-1])
        if self.remote is not None:
            self.remote.rest()
        return env_s

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()

    def _begin(self, step: int, into: int) -> None:
        """Copy the current observations to row 0, draw the noise, and clear the last rollout's final observations."""
        rows, finals = self._sets[into]
        rows[0].show(self._between)
        if self._deferred is not None:
            self._deferred.begin()
        for final in finals:
            final.count[0] = 0
        own = {"seed": self._seed, "first_group": self._first_group, "group_size": self._size}
        noise.draw(self._head, self._noise, **own, step=step)

    def _settle(self, own: Row, finals: Sequence[FinalSlot]) -> None:
        """Compute what acting does not need, in bulk: log-probabilities and the values not computed yet."""
        n_steps, count = own.log_prob.shape
        chunk = max(1, self._settled // count)
        for start in range(0, n_steps + 1, chunk):
            rows = slice(start, start + chunk)
            if self._deferred is not None:
                self._deferred.values({name: leaf[rows] for name, leaf in own.obs.items()}, own.value[rows])
            params = self._params[rows]
            if len(params):
                mask = None if own.mask is None else _steps(own.mask[start : start + len(params)])
                log_prob = self._head.log_prob(_steps(params), _steps(own.action[rows]), mask)
                own.log_prob[rows] = log_prob.reshape(-1, count)
            self._heartbeat[BEAT] += 1
        if self._deferred is None:
            own.value[-1] = self._actor({name: leaf[-1] for name, leaf in own.obs.items()})[1]
        for final in finals:
            # Pad to whole groups: the last bits of a forward pass depend on its batch size.
            entries = int(final.count[0])
            for start in range(0, entries, self._size):
                size = min(self._size, entries - start)
                padded = {name: _padded(leaf[start : start + size], self._size) for name, leaf in final.obs.items()}
                final.value[start : start + size] = self._group_actor(padded)[1][:size]


class InterleavedCollectors:
    """Runs the collectors of a worker's lanes in turn: while one waits for the policy or its envs, the next one runs.

    Args:
        collectors: One per lane. A worker has one lane unless its envs wait or the policy runs elsewhere.
    """

    def __init__(self, collectors: Sequence[RolloutCollector]) -> None:
        self._collectors = collectors
        self._remotes = [collector.remote for collector in collectors if collector.remote is not None]

    def connect(self, channel: InferenceChannel) -> None:
        """Set the connection to the inference servers, with central inference."""
        for remote in self._remotes:
            remote.channel = channel

    def reset(self) -> None:
        """Reset every env to its first episode."""
        for collector in self._collectors:
            collector.reset()

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Restore every env from its history; returns the envs that started a new episode instead."""
        return [env for collector in self._collectors for env in collector.restore(histories)]

    def dump(self) -> list[bytes]:
        """Pickle the envs in their current state; one entry per env."""
        return [entry for collector in self._collectors for entry in collector.dump()]

    def collect(self, step: int, into: int = 0) -> CollectTimes:
        """Fill all slots of set `into`, one row per lane in turn; the rollout begins at `step` of each env."""
        began, env_s = perf_counter(), 0.0
        going: list[Any] = [collector.rows(step, into) for collector in self._collectors]
        while going:
            for rows in list(going):
                try:
                    next(rows)
                except StopIteration as done:
                    env_s += done.value
                    going.remove(rows)
        total_s, waiting_s = perf_counter() - began, sum(remote.waited_s() for remote in self._remotes)
        return CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s, waiting_s=waiting_s)

    def close(self) -> None:
        """Close the envs."""
        for collector in self._collectors:
            collector.close()


def _steps(rows: NDArray[Any]) -> NDArray[Any]:
    """Reshape `[R, n, ...]` to `[R * n, ...]`."""
    return rows.reshape(-1, *rows.shape[2:])


def _padded(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """Pad to `size` rows by repeating the first row; needs at least one."""
    return rows if len(rows) == size else np.concatenate([rows, rows[:1].repeat(size - len(rows), 0)])
