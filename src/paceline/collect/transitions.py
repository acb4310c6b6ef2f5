"""The off-policy collector: steps a worker's envs and writes every transition into the replay buffer.

    actor(obs) -> epsilon-greedy action -> envs.step -> a row of the ring buffer      for a number of rows or episodes

The same class runs in a worker process and inline in the driver. With a budget in episodes, a worker steps its groups
one after another, because groups need different numbers of rows; with a budget in steps, it steps them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect import noise
from paceline.collect.inference_client import RemoteActor
from paceline.collect.times import CollectTimes
from paceline.envs.block import EnvBlock, History
from paceline.memory.replay_rows import ReplayWriter
from paceline.memory.rows import Row
from paceline.memory.worker_status import BEAT, STEPS, STOP
from paceline.nets.actor import Actor, DeferredValueActor
from paceline.nets.features import Leaves
from paceline.ops.exploring import EpsilonGreedy
from paceline.runtime.protocol import InferenceChannel

NOISE_ROWS = 16
"""Rows of action noise drawn per call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectBudget:
    """Budget of one collect call: a number of rows, or of episodes per group."""

    rows: int
    """Rows to collect; with `episodes`, the upper limit."""
    episodes: int | None = None
    """Episodes to finish in each group; None to collect `rows` rows."""


@dataclass(frozen=True, slots=True)
class Written:
    """A worker's reply: how much it has written to the replay buffer."""

    rows: list[int]
    """Rows written, per group."""
    times: CollectTimes


Judge = Callable[[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_] | None], Any]
"""Params and values of the policy, actions, masks -> Q-values of those actions and of the greedy ones, [n] each."""


class Lane:
    """Groups that are stepped together, with one forward pass."""

    def __init__(
        self,
        envs: EnvBlock,
        writer: ReplayWriter,
        actor: Actor,
        head: EpsilonGreedy,
        rows: tuple[Row, Row],
        *,
        seed: int,
        first_group: int,
        groups: int,
        group_size: int,
        epsilon: NDArray[np.float32],
        heartbeat: NDArray[np.int64],
        judge: Judge | None = None,
        gamma: float = 1.0,
    ) -> None:
        """Take ownership of the envs of these groups.

        Args:
            envs: The envs of all the groups.
            writer: Writes their columns of the replay buffer.
            actor: The policy over all the groups.
            head: Epsilon-greedy action selection.
            rows: Two rows that the lane owns: the current observations and the next ones.
            seed: The run's seed.
            first_group: The first group.
            groups: Number of groups.
            group_size: Envs per group.
            epsilon: [envs] exploration rate of each env; the driver writes it.
            heartbeat: The worker's status line.
            judge: Computes Q-values for the initial priorities; None without prioritised replay.
            gamma: Discount factor, for the initial priorities.
        """
        self._envs, self._writer, self._actor, self._head = envs, writer, actor, head
        self._now, self._after = rows
        self._epsilon, self._heartbeat = epsilon, heartbeat
        self._first_group, self.groups, self._size = first_group, groups, group_size
        self._age = np.zeros(groups * group_size, np.int64)
        self._noise = np.empty((NOISE_ROWS, groups * group_size, 2), np.float32)
        own = {"seed": seed, "first_group": first_group, "group_size": group_size}
        self._draw_noise = partial(noise.draw, head, self._noise, **own)
        self._judge, self._gamma = judge, np.float32(gamma)
        self.remote = actor if isinstance(actor, RemoteActor) else None
        """The actor, with central inference; None if the policy runs here."""
        self._acting: Actor = actor
        if judge is None and isinstance(actor, DeferredValueActor):  # nothing reads the values: skip computing them
            self._acting = partial(_without_values, actor)

    def head(self, heads: Sequence[int]) -> int:
        """Pick the head row of this lane; all of its groups must have the same one, since they are stepped together."""
        mine = heads[self._first_group : self._first_group + self.groups]
        if min(mine) != max(mine):
            raise RuntimeError(f"replay: groups of one lane must have the same head row (heads {mine})")
        return mine[0]

    def reset(self, head: int) -> None:
        """Reset every env and write the first observations to row `head`."""
        self._envs.reset(self._now)
        self._age[:] = 0
        self._begin_at(head, range(len(self._age)))

    def _begin_at(self, head: int, new: Sequence[int]) -> None:
        """Write the current observations to row `head`.

        Args:
            head: Row of the replay buffer.
            new: Envs whose previous episode, as stored in the replay buffer, was abandoned: mark it as cut off there.
        """
        for i in new:
            self._writer.cut(head, i)
        self._writer.show(head, self._now, self._age)
        self._heartbeat[BEAT] += 1

    def restore(self, histories: Sequence[History], head: int) -> list[int]:
        """Restore every env from its history and write its observation to row `head`.

        Returns:
            Indices (in the run) of the envs that could not be restored and started a new episode.
        """
        first = self._first_group * self._size
        mine = histories[first : first + len(self._age)]
        restarted = self._envs.restore(mine, self._now)
        self._age[:] = [len(history.actions) for history in mine]
        self._age[restarted] = 0
        self._begin_at(head, restarted)
        return [first + i for i in restarted]

    def collect(self, start: int, budget: CollectBudget) -> tuple[int, float]:
        """Step the envs and write rows from row `start` on; returns the number of rows and the seconds in the envs."""
        writer, envs, head = self._writer, self._envs, self._head
        head.epsilon = self._epsilon.copy()  # epsilon is constant within one collect call
        played, env_s, t = np.zeros(self.groups, np.int64), 0.0, 0
        judged: list[Any] = []
        while t < budget.rows and (budget.episodes is None or (played < budget.episodes).any()):
            if t % NOISE_ROWS == 0:
                self._draw_noise(step=start + t)
            row, after = self._now, self._after
            params, value = self._acting(row.obs)
            action = head.choose(params, self._noise[t % NOISE_ROWS], row.mask)
            if self._judge is not None:
                judged.append(self._judge(params, value, action, row.mask))
            row.action[...] = action
            before_step = perf_counter()
            finals = envs.step(action, row, after)
            env_s += perf_counter() - before_step
            writer.write(start + t, row)
            for i, obs in finals:
                writer.add_final(start + t, i, obs)
            ended = row.terminated | row.truncated
            if ended.any():
                played += ended.reshape(self.groups, self._size).sum(1)
            self._age += 1
            self._age[ended | ~row.valid] = 0
            t += 1
            writer.show(start + t, after, self._age)
            if self._judge is not None:
                judged[-1] = (*judged[-1], row.reward.copy(), ended)
            self._now, self._after = after, row
            self._heartbeat[BEAT] += 1
            self._heartbeat[STEPS] += len(ended)
            if self._heartbeat[STOP]:
                break  # the run is ending and nothing reads these rows
        if self._judge is not None:
            self._write_priorities(start, judged, self._judge)
        if self.remote is not None:
            self.remote.rest()
        return t, env_s

    def _write_priorities(self, start: int, judged: list[Any], judge: Judge) -> None:
        """Write initial priorities: the absolute one-step TD error of each transition, by the weights that acted."""
        params, value = self._actor(self._now.obs)
        taken, best, reward, ended = (np.stack(column) for column in zip(*judged, strict=True))
        _, last = judge(params, value, np.zeros(len(value), np.int64), self._now.mask)
        follows = np.concatenate([best[1:], last[None]])
        error = reward + np.where(ended, np.float32(0.0), self._gamma * follows) - taken
        self._writer.surprise(start, np.abs(error))

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()


class TransitionCollector:
    """Runs all lanes of a worker, one after another. The job of a worker in DQN.

    Args:
        lanes: In group order.
        renew: Updates the weights to act with, before each request.
    """

    def __init__(self, lanes: Sequence[Lane], renew: Callable[[], object]) -> None:
        self._lanes, self._renew = lanes, renew
        self._remotes = [lane.remote for lane in lanes if lane.remote is not None]

    def connect(self, channel: InferenceChannel) -> None:
        """Set the connection to the inference servers, with central inference."""
        for remote in self._remotes:
            remote.channel = channel

    def reset(self, heads: Sequence[int]) -> None:
        """Reset every env and write the first observations at these heads, which are those of all groups of the run."""
        for lane in self._lanes:
            lane.reset(lane.head(heads))

    def restore(self, histories: Sequence[History], heads: Sequence[int]) -> list[int]:
        """Restore every env from its history; returns the envs (of the run) that started a new episode instead."""
        return [env for lane in self._lanes for env in lane.restore(histories, lane.head(heads))]

    def collect(self, heads: Sequence[int], budget: CollectBudget) -> Written:
        """Step the envs and write rows, starting at each group's head.

        Args:
            heads: Head row of each group of the run.
            budget: How much to collect.
        """
        self._renew()
        began, env_s, rows = perf_counter(), 0.0, list[int]()
        for lane in self._lanes:
            count, seconds = lane.collect(lane.head(heads), budget)
            rows += [count] * lane.groups
            env_s += seconds
        total_s, waiting_s = perf_counter() - began, sum(remote.waited_s() for remote in self._remotes)
        times = CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s, waiting_s=waiting_s)
        return Written(rows, times)

    def close(self) -> None:
        """Close the envs."""
        for lane in self._lanes:
            lane.close()


def _without_values(actor: DeferredValueActor, obs: Leaves, /) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    actor.begin()  # the learner may publish new weights between any two rows
    return actor.act(obs), _NO_VALUES


_NO_VALUES = np.empty(0, np.float32)
