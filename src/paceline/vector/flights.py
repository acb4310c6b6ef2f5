"""Which envs are under way: sent to a worker, waiting for it, or back and not yet taken.

    send(ids) --> worker idle: rung at once        --> back, when the worker is done with all it was sent
                  worker busy: rung when it is back

A worker does what it was sent in one ring and says so when all of that is done; what is sent to it meanwhile makes the
next ring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from paceline.vector.channel import Channel, Packed
from paceline.vector.seat import Infos


class Flights:
    """Sends envs out and takes them in.

    Args:
        channel: The way to them.
        num_envs: How many there are.
    """

    def __init__(self, channel: Channel, num_envs: int) -> None:
        self._channel, self._due = channel, channel.memory["due"]
        self._everyone = [list(range(s.first_group, s.first_group + s.groups)) for s in channel.shares]
        self.worker_of = [worker for worker, envs in enumerate(self._everyone) for _ in envs]
        self.out: frozenset[int] = frozenset()
        """Envs sent and not yet taken."""
        self.infos: dict[int, Infos] = {}
        """What those taken last had to say; only those that had."""
        self.loose: dict[int, tuple[Any, ...]] = {}
        """The newest parts of observations without fixed size, of every env that has such."""
        self._back: list[int] = []
        self._flying: dict[int, list[int]] = {}
        self._queued: list[deque[tuple[list[int], Packed]]] = [deque() for _ in channel.shares]
        self._told: dict[int, Infos] = {}
        self._all, self._workers = frozenset(range(num_envs)), range(len(channel.shares))
        self._whole = [False] * len(channel.shares)  # whether all envs of a worker are marked as due

    def send_all(self) -> None:
        """Have every env step with its action in shared memory; none of them may be out."""
        self.out = self._all
        for worker, envs in enumerate(self._everyone):
            self._launch(worker, envs, None)

    def take_all(self, doing: str) -> None:
        """`take` after `send_all`."""
        workers = self._workers
        self._channel.wait(workers, at_least=len(workers), doing=doing)
        for worker in workers:
            self._land(worker)
        self._back = []
        self.infos, self._told = self._told, {}
        self.out = frozenset()

    def send(self, worker: int, envs: list[int], order: Packed) -> None:
        """Have envs of one worker do something.

        Args:
            worker: Whose.
            envs: Ascending; none of them may be out.
            order: What to do, as the channel packed it.
        """
        self.out |= set(envs)
        queue = self._queued[worker]
        if worker not in self._flying:
            self._launch(worker, envs, order)
        elif queue and queue[-1][1] is None and order is None:
            queue[-1] = (sorted(queue[-1][0] + envs), None)
        else:
            queue.append((envs, order))

    def take(self, at_least: int, doing: str) -> list[int]:
        """Wait until so many envs are back; all that are, ascending.

        Raises:
            WorkerError: A worker failed, died or missed its deadline.
            EnvError: An env of this process failed.
        """
        channel = self._channel
        everyone = at_least >= len(self.out)
        while len(self._back) < at_least:
            flying = list(self._flying)
            # Where all are wanted there is nothing to do for the first that come.
            need = len(flying) if everyone and not any(self._queued) else 1
            for worker in channel.wait(flying, at_least=need, doing=doing):
                self._land(worker)
        back = sorted(self._back)
        self._back = []
        self.infos, self._told = self._told, {}
        self.out -= set(back)
        return back

    def _launch(self, worker: int, envs: list[int], order: Packed) -> None:
        everyone = self._everyone[worker]
        whole = len(envs) == len(everyone)
        if not (whole and self._whole[worker]):
            self._due[everyone] = whole
            self._due[envs] = 1
            self._whole[worker] = whole
        self._flying[worker] = envs
        self._channel.begin(worker, order)

    def _land(self, worker: int) -> None:
        self._back += self._flying.pop(worker)
        for env, infos, loose in self._channel.news(worker):
            if infos:
                self._told[env] = infos
            if loose:
                self.loose[env] = loose
        if self._queued[worker]:
            self._launch(worker, *self._queued[worker].popleft())


def by_worker(worker_of: Sequence[int], envs: Sequence[int]) -> dict[int, list[int]]:
    """Positions in `envs`, which ascend, by the worker that has them."""
    found: dict[int, list[int]] = {}
    for position, env in enumerate(envs):
        found.setdefault(worker_of[env], []).append(position)
    return found
