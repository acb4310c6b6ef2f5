"""Inference requests: workers ask the driver for actions in the middle of a command, many thousand times per second.

    worker: observations to the arena, ASKED += 1   --(signal, if the server sleeps)-->   server (thread of the driver)
            <--(signal, if the worker sleeps)--   actions to the arena, ANSWERED = ASKED

The direction is the reverse of the doorbell: a worker sends requests while it executes a call, and the driver answers
them. A *lane* is a part of a worker's envs that has at most one open request. A worker with two lanes steps the envs
of one lane while the driver answers the request of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arena, Field
from paceline.memory.worker_status import BEAT, STOP
from paceline.runtime.doorbell import CHECK_S
from paceline.system.fences import fence, in_order
from paceline.system.wakeups import DescriptorWatch, Signal, new_signal

ASKED, ANSWERED, ACTIVE = range(3)
"""Entries of a lane's line: requests, answers, and whether the lane will send more requests."""
LONGEST_WAIT_S = 60.0
"""How long a worker that waits for an answer increments its heartbeat, so that it does not count as hung."""
ASLEEP = 0
"""Entry of a worker's or a server's line: whether it sleeps and needs a signal."""


def inference_request_fields(lanes: int, workers: int, servers: int) -> list[Field]:
    """Return the arena fields: one cache line per lane, worker and server."""
    return [
        Field.of("inference_requests/lanes", (lanes, 8), np.int64),
        Field.of("inference_requests/workers", (max(1, workers), 8), np.int64),
        Field.of("inference_requests/servers", (servers, 8), np.int64),
    ]


class InferenceRequester:
    """The worker's side.

    Args:
        arena: Holds `inference_request_fields`.
        worker: Index of the worker.
        servers: Signals that wake the servers.
        answered: Signal that wakes this worker.
    """

    def __init__(self, arena: Arena, worker: int, servers: Sequence[Signal], answered: Signal) -> None:
        self._lanes: NDArray[np.int64] = arena["inference_requests/lanes"]
        self._own = arena["inference_requests/workers"][worker]
        self._servers_asleep = arena["inference_requests/servers"]
        self._line = arena["heartbeat"][worker]
        self._servers, self._answered = servers, answered
        self._watch = DescriptorWatch([answered.waitable])

    def ask(self, lane: int, server: int) -> None:
        """Announce that the lane's data is in the arena, and that more requests will follow."""
        in_order()
        self._lanes[lane, ACTIVE] = 1
        self._lanes[lane, ASKED] += 1
        self._wake(server)

    def end(self, lane: int, server: int) -> None:
        """Announce that the lane sends no more requests, so that the server does not wait for it."""
        self._lanes[lane, ACTIVE] = 0
        self._wake(server)

    def wait(self, lane: int) -> float:
        """Block until the lane's request is answered or the run stops; returns the seconds waited."""
        began, line, checks = perf_counter(), self._lanes[lane], 0
        while line[ANSWERED] != line[ASKED] and not self._line[STOP]:
            if 0 < checks < LONGEST_WAIT_S / CHECK_S:
                # The worker does not hang while others keep the server busy. Limited, since the server itself may hang.
                self._line[BEAT] += 1
            checks += 1
            self._own[ASLEEP] = 1
            fence()
            self._watch.wait(0.0 if line[ANSWERED] == line[ASKED] else CHECK_S)
            self._own[ASLEEP] = 0
            self._answered.clear()
        in_order()
        return perf_counter() - began

    def _wake(self, server: int) -> None:
        fence()
        if self._servers_asleep[server, ASLEEP]:
            self._servers[server].set()


class InferenceRequests:
    """The driver's side.

    Args:
        arena: Holds `inference_request_fields`.
    """

    def __init__(self, arena: Arena) -> None:
        self._lanes: NDArray[np.int64] = arena["inference_requests/lanes"]
        self._workers, self._servers = arena["inference_requests/workers"], arena["inference_requests/servers"]
        self._asked = [new_signal() for _ in self._servers]
        self._answered = [new_signal() for _ in self._workers]
        self._watches = [DescriptorWatch([signal.waitable]) for signal in self._asked]

    def worker_end(self, worker: int) -> Callable[[Arena, int], InferenceRequester]:
        """Return what opens the worker's side, to be passed to the new process and called there."""
        return partial(InferenceRequester, servers=tuple(self._asked), answered=self._answered[worker])

    def counters(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a copy [lanes, 3] of the counters ASKED, ANSWERED and ACTIVE of these lanes."""
        lines: NDArray[np.int64] = self._lanes[lanes, : ACTIVE + 1]
        in_order()
        return lines

    def sleep(self, server: int, lanes: NDArray[np.int64], seen: NDArray[np.int64]) -> None:
        """Block until the counters of one of these lanes differ from `seen`, or until a timeout."""
        self._servers[server, ASLEEP] = 1
        fence()
        changed = not np.array_equal(self._lanes[lanes, : ACTIVE + 1], seen)
        self._watches[server].wait(0.0 if changed else CHECK_S)
        self._servers[server, ASLEEP] = 0
        self._asked[server].clear()

    def answer(self, lane: int, worker: int) -> None:
        """Announce that the answer to a lane of this worker is in the arena."""
        in_order()
        self._lanes[lane, ANSWERED] = self._lanes[lane, ASKED]
        fence()
        if self._workers[worker, ASLEEP]:
            self._answered[worker].set()

    def forget(self, lanes: NDArray[np.int64], worker: int) -> None:
        """Reset the lanes of a worker that is replaced: the new one has sent no request."""
        self._lanes[lanes] = 0
        self._workers[worker] = 0
        for server in range(len(self._asked)):
            self.wake(server)  # the other lanes of its chunks need not wait for this worker now

    def wake(self, server: int) -> None:
        """Wake a server, so that it reads the counters of its lanes."""
        self._asked[server].set()

    def close(self) -> None:
        """Close the signals. Idempotent."""
        for signal in (*self._asked, *self._answered):
            signal.close()
