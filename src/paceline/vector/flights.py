"""Tracks pending env steps: running in a worker, queued for a busy worker, or done and not yet returned by `recv`.

    send(ids) --> worker idle: notified at once         --> done, when the worker has finished all envs it was sent
                  worker busy: queued until it is done

One wake-up makes a worker step all the envs sent to it, and it replies once, when all are done. Steps that are sent
meanwhile go into its next wake-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from paceline.vector.channel import Channel, Packed
from paceline.vector.seat import Infos


class Flights:
    """Starts env steps and collects the finished ones.

    Args:
        channel: The transport to the workers.
        num_envs: Number of envs.
    """

    def __init__(self, channel: Channel, num_envs: int) -> None:
        self._channel, self._due = channel, channel.memory["due"]
        self._envs_of = [share.envs(1) for share in channel.shares]
        self.worker_of = [worker for worker, envs in enumerate(self._envs_of) for _ in envs]
        self.out: frozenset[int] = frozenset()
        """Envs with a pending step: sent and not yet taken."""
        self.infos: dict[int, Infos] = {}
        """Infos of the envs taken last; only non-empty ones."""
        self.loose: dict[int, tuple[Any, ...]] = {}
        """Latest variable-size parts of the observations, by env."""
        self._done: list[int] = []
        self._running: dict[int, list[int]] = {}
        self._queued: list[deque[tuple[list[int], Packed]]] = [deque() for _ in channel.shares]
        self._new_infos: dict[int, Infos] = {}
        self._all, self._workers = frozenset(range(num_envs)), range(len(channel.shares))
        self._whole = [False] * len(channel.shares)  # whether all envs of a worker are marked as due

    def send_all(self) -> None:
        """Step every env with its action in shared memory. No env may have a pending step."""
        self.out = self._all
        for worker, envs in enumerate(self._envs_of):
            self._start(worker, envs, None)

    def take_all(self, doing: str) -> None:
        """Block until all envs are done; the fast path for use after `send_all`."""
        workers = self._workers
        self._channel.wait(workers, at_least=len(workers), doing=doing)
        for worker in workers:
            self._collect(worker)
        self._done = []
        self.infos, self._new_infos = self._new_infos, {}
        self.out = frozenset()

    def send(self, worker: int, envs: list[int], order: Packed) -> None:
        """Step or reset envs of one worker: at once if it is idle, otherwise when it is done.

        Args:
            worker: The worker.
            envs: Its envs, ascending; none may have a pending step.
            order: What to do, packed by the channel.
        """
        self.out |= set(envs)
        queue = self._queued[worker]
        if worker not in self._running:
            self._start(worker, envs, order)
        elif queue and queue[-1][1] is None and order is None:
            queue[-1] = (sorted(queue[-1][0] + envs), None)
        else:
            queue.append((envs, order))

    def take(self, at_least: int, doing: str) -> list[int]:
        """Block until at least `at_least` envs are done; returns all that are, ascending.

        Raises:
            WorkerError: A worker failed, died or missed its deadline.
            EnvError: An env of this process failed.
        """
        channel = self._channel
        all_envs = at_least >= len(self.out)
        while len(self._done) < at_least:
            running = list(self._running)
            # If the caller wants all envs and nothing is queued, one wait for all workers is enough.
            need = len(running) if all_envs and not any(self._queued) else 1
            for worker in channel.wait(running, at_least=need, doing=doing):
                self._collect(worker)
        done = sorted(self._done)
        self._done = []
        self.infos, self._new_infos = self._new_infos, {}
        self.out -= set(done)
        return done

    def _start(self, worker: int, envs: list[int], order: Packed) -> None:
        all_envs = self._envs_of[worker]
        whole = len(envs) == len(all_envs)
        if not (whole and self._whole[worker]):
            self._due[all_envs] = whole
            self._due[envs] = 1
            self._whole[worker] = whole
        self._running[worker] = envs
        self._channel.begin(worker, order)

    def _collect(self, worker: int) -> None:
        self._done += self._running.pop(worker)
        for env, infos, loose in self._channel.news(worker):
            if infos:
                self._new_infos[env] = infos
            if loose:
                self.loose[env] = loose
        if self._queued[worker]:
            self._start(worker, *self._queued[worker].popleft())


def by_worker(worker_of: Sequence[int], envs: Sequence[int]) -> dict[int, list[int]]:
    """Positions in `envs` (ascending) by the worker that owns the env."""
    found: dict[int, list[int]] = {}
    for position, env in enumerate(envs):
        found.setdefault(worker_of[env], []).append(position)
    return found
