"""The collector: steps a worker's envs with its own copy of the policy and fills their slots.

    actor(obs[t]) -> head.sample -> envs.step -> obs[t+1]        T times, then the values that bootstrapping needs

It runs in a worker, or inline in the driver: the same object either way. Nothing here waits for anyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect import noise
from paceline.envs.group import EnvBlock, History
from paceline.memory.slots import Slots
from paceline.nets.actor import Actor
from paceline.ops.distributions import ActionHead


@dataclass(frozen=True, slots=True)
class CollectTimes:
    """Where a worker's rollout went."""

    env_s: float
    inference_s: float
    total_s: float
    learn_s: float = 0.0
    """Computing gradients, since the rollout before."""


class RolloutCollector:
    """Collects T steps of `groups` groups at a time. Owns the envs; the slots are the arena's."""

    def __init__(
        self,
        envs: EnvBlock,
        slots: Slots,
        actor: Actor,
        group_actor: Actor,
        head: ActionHead,
        *,
        seed: int,
        first_group: int,
        groups: int,
        heartbeat: NDArray[np.int64],
    ) -> None:
        """Own these groups.

        Args:
            envs: The envs of all the groups.
            slots: Where every group of the run is written; this collector keeps to its own columns.
            actor: The policy over all its groups.
            group_actor: The policy over one group, for final observations.
            head: Turns policy outputs and noise into actions.
            seed: The run's seed.
            first_group: The first group it owns.
            groups: How many it owns.
            heartbeat: One counter, moved on by the first reset and by every row: proof of life for the supervisor.
        """
        shape = slots.shape
        self._envs, self._actor, self._group_actor, self._head = envs, actor, group_actor, head
        self._seed, self._first_group, self._size = seed, first_group, shape.group_size
        self._rows = slots.rows(first_group, groups)
        self._finals = [slots.final_slot(first_group + g) for g in range(groups)]
        self._noise = np.empty((shape.n_steps, groups * self._size, shape.spec.action.noise_size), np.float32)
        self._heartbeat = heartbeat

    def reset(self) -> None:
        """Begin every env's first episode."""
        self._envs.reset(self._rows[-1])
        self._heartbeat[0] += 1

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Put every env where it was; returns the envs (of the run) that had to begin a new episode.

        Args:
            histories: One per env of the run; the collector takes its own.
        """
        first = self._first_group * self._size
        mine = histories[first : first + self._noise.shape[1]]
        strayed = self._envs.restore(mine, self._rows[-1])
        self._heartbeat[0] += 1
        return [first + i for i in strayed]

    def dump(self) -> list[bytes]:
        """The envs as they are, pickled; one entry per env."""
        return self._envs.dump()

    def collect(self, step: int) -> CollectTimes:
        """Fill this collector's slots with the rollout that begins at `step` (of each env)."""
        rows, actor, sample, envs = self._rows, self._actor, self._head.sample, self._envs
        began = perf_counter()
        self._begin(step)
        env_s = 0.0
        for t, (row, after, row_noise) in enumerate(zip(rows, rows[1:], self._noise, strict=False)):
            params, value = actor(row.obs)
            action, log_prob = sample(params, row_noise, row.mask)
            row.value[...] = value
            row.action[...] = action
            row.log_prob[...] = log_prob
            before_step = perf_counter()
            finals = envs.step(action, row, after)
            env_s += perf_counter() - before_step
            for i, obs in finals:
                self._finals[i // self._size].add(t, self._first_group * self._size + i, obs)
            self._heartbeat[0] += 1
        self._bootstrap()
        total_s = perf_counter() - began
        return CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s)

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()

    def _begin(self, step: int) -> None:
        """Carry the last row over, draw the noise, forget old finals."""
        first, last = self._rows[0], self._rows[-1]
        for name, leaf in first.obs.items():
            leaf[...] = last.obs[name]
        if first.mask is not None and last.mask is not None:
            first.mask[...] = last.mask
        for final in self._finals:
            final.count[0] = 0
        noise.draw(
            self._head,
            self._noise,
            seed=self._seed,
            first_group=self._first_group,
            group_size=self._size,
            step=step,
        )

    def _bootstrap(self) -> None:
        """Values of the row after the last, and of the last real observations of truncated episodes."""
        last = self._rows[-1]
        last.value[...] = self._actor(last.obs)[1]
        for final in self._finals:
            # In whole groups: a forward's last bits depend on its batch size.
            count = int(final.count[0])
            for start in range(0, count, self._size):
                chunk = min(self._size, count - start)
                padded = {name: _padded(leaf[start : start + chunk], self._size) for name, leaf in final.obs.items()}
                final.value[start : start + chunk] = self._group_actor(padded)[1][:chunk]


def _padded(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """At least one row, repeated to `size` rows."""
    return rows if len(rows) == size else np.concatenate([rows, rows[:1].repeat(size - len(rows), 0)])
