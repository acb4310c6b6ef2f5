"""The collector of off-policy learning: steps a worker's envs and writes every step into the replay.

    actor(obs) -> best action, or any -> envs.step -> a row of the ring         until so many rows, or episodes

It runs in a worker, or inline in the driver: the same object either way. Groups that play a number of episodes are
stepped one after another, since one may need more rows than another; groups that take a number of steps, together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect import noise
from paceline.collect.remote import Asking, RemoteActor
from paceline.collect.times import CollectTimes
from paceline.envs.block import EnvBlock, History
from paceline.memory.lines import BEAT, STOP
from paceline.memory.replay_rows import ReplayWriter
from paceline.memory.rows import Row
from paceline.nets.actor import Actor, PatientActor
from paceline.nets.features import Leaves
from paceline.ops.exploring import EpsilonGreedy

NOISE_ROWS = 16
"""Rows whose randomness is drawn at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stint:
    """How long to collect: a number of rows, or of episodes in each group."""

    rows: int
    """Rows; with episodes, the most."""
    episodes: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a worker says of its rows."""

    rows: list[int]
    """By group."""
    times: CollectTimes


Judge = Callable[[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_] | None], Any]
"""Outputs of the policy, actions and masks -> the value of those actions and of the best ones, [n] each."""


class Lane:
    """Groups that are stepped together, by one forward."""

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
        """Own these groups.

        Args:
            envs: The envs of all of them.
            writer: Their columns of the replay.
            actor: The policy over all of them.
            head: Explores.
            rows: Two rows of their own: what the envs show, and what they show next.
            seed: The run's.
            first_group: The first group.
            groups: How many.
            group_size: Envs in each.
            epsilon: [envs] how much each explores; written by the driver.
            heartbeat: The worker's line.
            judge: Values of actions, where the replay wants to know how surprising transitions are.
            gamma: Discount, for that.
        """
        self._envs, self._writer, self._actor, self._head = envs, writer, actor, head
        self._now, self._after = rows
        self._seed, self._epsilon, self._heartbeat = seed, epsilon, heartbeat
        self._first_group, self.groups, self._size = first_group, groups, group_size
        self._age = np.zeros(groups * group_size, np.int64)
        self._noise = np.empty((NOISE_ROWS, groups * group_size, 2), np.float32)
        self._judge, self._gamma = judge, np.float32(gamma)
        self._seen: Actor = actor
        if judge is None and isinstance(actor, PatientActor):  # nobody asks for values
            self._seen = partial(_without_values, actor)

    def reset(self, head: int) -> None:
        """Begin every env's episode, which shows in row `head`."""
        self._envs.reset(self._now)
        self._age[:] = 0
        self._begin_at(head, range(len(self._age)))

    def _begin_at(self, head: int, new: Sequence[int]) -> None:
        """Show what the envs show; of the new ones, the replay had another episode, which is cut off."""
        for i in new:
            self._writer.cut(head, i)
        self._writer.show(head, self._now, self._age)
        self._heartbeat[BEAT] += 1

    def restore(self, histories: Sequence[History], head: int) -> list[int]:
        """Put every env where it was, in row `head`; returns the envs (of the run) that began a new episode."""
        first = self._first_group * self._size
        mine = histories[first : first + len(self._age)]
        strayed = self._envs.restore(mine, self._now)
        self._age[:] = [len(history.actions) for history in mine]
        self._age[strayed] = 0
        self._begin_at(head, strayed)
        return [first + i for i in strayed]

    def collect(self, start: int, stint: Stint) -> tuple[int, float]:
        """Write rows from row `start` on; returns how many, and the seconds that the envs took."""
        writer, envs, head = self._writer, self._envs, self._head
        head.epsilon = self._epsilon.copy()  # all of a stint is acted with one epsilon
        played, env_s, t = np.zeros(self.groups, np.int64), 0.0, 0
        judged: list[Any] = []
        while t < stint.rows and (stint.episodes is None or (played < stint.episodes).any()):
            if t % NOISE_ROWS == 0:
                noise.draw(
                    head,
                    self._noise,
                    seed=self._seed,
                    first_group=self._first_group,
                    group_size=self._size,
                    step=start + t,
                )
            row, after = self._now, self._after
            params, value = self._seen(row.obs)
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
            if self._heartbeat[STOP]:
                break  # the run is over, and nobody will look at this
        if self._judge is not None:
            self._say_surprise(start, judged, self._judge)
        if isinstance(self._actor, RemoteActor):
            self._actor.rest()
        return t, env_s

    def connect(self, asker: Asking) -> None:
        """Whom to ask, where the policy is elsewhere."""
        if isinstance(self._actor, RemoteActor):
            self._actor.asker = asker

    def waited_s(self) -> float:
        """Seconds of doing nothing but wait for the policy since this was last asked."""
        return self._actor.waited_s() if isinstance(self._actor, RemoteActor) else 0.0

    def _say_surprise(self, start: int, judged: list[Any], judge: Judge) -> None:
        """How far the value of each action was from what followed, by the weights that acted."""
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
    """All lanes of a worker, one after another.

    Args:
        lanes: In the order of their groups.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes

    def connect(self, asker: Asking) -> None:
        """Whom to ask, where the policy is elsewhere."""
        for lane in self._lanes:
            lane.connect(asker)

    def reset(self, heads: Sequence[int]) -> None:
        """Begin every env's episode, at the heads of this worker's groups."""
        for lane, head in zip(self._lanes, self._firsts(heads), strict=True):
            lane.reset(head)

    def restore(self, histories: Sequence[History], heads: Sequence[int]) -> list[int]:
        """Put every env where it was; returns the envs (of the run) that had to begin a new episode."""
        firsts = self._firsts(heads)
        return [env for lane, head in zip(self._lanes, firsts, strict=True) for env in lane.restore(histories, head)]

    def _firsts(self, heads: Sequence[int]) -> list[int]:
        """The head of each lane: its groups are equally far."""
        cuts = np.cumsum([0, *(lane.groups for lane in self._lanes)]).tolist()
        parts = [heads[start:stop] for start, stop in itertools.pairwise(cuts)]
        if uneven := [part for part in parts if min(part) != max(part)]:
            raise RuntimeError(f"replay: groups that are played together must be equally far (heads {uneven[0]})")
        return [part[0] for part in parts]

    def collect(self, heads: Sequence[int], stint: Stint) -> Written:
        """Write rows from each group's head on.

        Args:
            heads: By group of this worker.
            stint: How long.
        """
        began, env_s, rows = perf_counter(), 0.0, list[int]()
        for lane, head in zip(self._lanes, self._firsts(heads), strict=True):
            count, seconds = lane.collect(head, stint)
            rows += [count] * lane.groups
            env_s += seconds
        total_s, waiting_s = perf_counter() - began, sum(lane.waited_s() for lane in self._lanes)
        times = CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s, waiting_s=waiting_s)
        return Written(rows, times)

    def close(self) -> None:
        """Close the envs."""
        for lane in self._lanes:
            lane.close()


def _without_values(actor: PatientActor, obs: Leaves, /) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    actor.begin()  # weights may be new in any row
    return actor.act(obs), _NO_VALUES


_NO_VALUES = np.empty(0, np.float32)
