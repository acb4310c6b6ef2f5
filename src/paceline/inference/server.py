"""Central inference: the driver runs the policy for all workers, on the learner's device or on several.

    worker: envs.step -> request ------+            +--> answer -> envs.step ...
                                       v            |
    server thread:         wait -> one forward pass for a chunk of groups

A chunk is `inference_groups` consecutive groups, of any workers. Every forward pass computes a whole chunk: its last
bits depend on the batch size, which therefore must not depend on which worker is first. In synchronous modes a chunk
waits until all of its active lanes have sent a request; in asynchronous modes the first request starts it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Concatenate, Generic

import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError
from paceline.inference.central import Central
from paceline.inference.chunks import ActingPlan, Chunk, chunks_of
from paceline.memory.shared import Arena
from paceline.memory.worker_status import STOP
from paceline.runtime.inference_requests import ACTIVE, ANSWERED, ASKED, InferenceRequests
from paceline.runtime.protocol import J, P, R, Reply, Runtime, Share

CLOSE_TIMEOUT_S = 2.0


class InferenceServer:
    """A thread of the driver that answers the requests for some chunks."""

    def __init__(
        self,
        number: int,
        inference_requests: InferenceRequests,
        chunks: Sequence[Chunk],
        *,
        whole: bool,
        version: NDArray[np.int64],
        renew: Callable[[], object],
        stop_workers: Callable[[], None],
    ) -> None:
        """Prepare the thread; `start` starts it.

        Args:
            number: Index of this server.
            inference_requests: The driver's side of the requests.
            chunks: The chunks to answer.
            whole: Whether a chunk waits for all of its active lanes.
            version: [1] version of the newest weights, read if not `whole`.
            renew: Copies the newest weights to the actors.
            stop_workers: Called when the policy fails, so that workers stop waiting.
        """
        self._number, self._inference_requests, self._chunks, self._whole = number, inference_requests, chunks, whole
        self._version, self._renew, self._stop_workers = version, renew, stop_workers
        self._lanes = np.concatenate([chunk.lanes for chunk in chunks])
        self._cuts = np.cumsum([len(chunk.lanes) for chunk in chunks])[:-1]
        self._seen_version = -1
        self._closing = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=f"inference-{number}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Blocks for seconds at most."""
        self._closing = True
        if self._thread.is_alive():
            self._inference_requests.wake(self._number)
            self._thread.join(CLOSE_TIMEOUT_S)

    def answer(self, chunk: Chunk, lines: NDArray[np.int64]) -> bool:
        """Answer a chunk if its requests are complete; returns whether it did."""
        asked = lines[:, ASKED] != lines[:, ANSWERED]
        if not asked.any() or (self._whole and (~asked & (lines[:, ACTIVE] != 0)).any()):
            return False
        if not self._whole and (version := int(self._version[0])) != self._seen_version:
            self._renew()
            self._seen_version = version
        places = np.flatnonzero(asked).tolist()
        chunk.answer(places)
        for place in places:
            self._inference_requests.answer(int(chunk.lanes[place]), chunk.workers[place])
        return True

    def _serve(self) -> None:
        try:
            while not self._closing:
                lines = self._inference_requests.counters(self._lanes)
                parts = np.split(lines, self._cuts)
                answered = [self.answer(chunk, part) for chunk, part in zip(self._chunks, parts, strict=True)]
                if not any(answered):
                    self._inference_requests.sleep(self._number, self._lanes, lines)
        except BaseException as error:
            if not self._closing:
                self.failure = error
                self._stop_workers()


class InlineAsker:
    """The channel of a job in this process: `wait` runs the policy itself.

    Args:
        chunks: All chunks.
        renew: Copies the newest weights to the actors.
        version: [1] version of the newest weights.
    """

    def __init__(self, chunks: Sequence[Chunk], renew: Callable[[], object], version: NDArray[np.int64]) -> None:
        self._chunk_of = {int(lane): (chunk, i) for chunk in chunks for i, lane in enumerate(chunk.lanes)}
        self._renew, self._version, self._seen_version = renew, version, -1

    def ask(self, lane: int, server: int) -> None:
        """Do nothing: `wait` computes the answer."""

    def wait(self, lane: int) -> float:
        """Compute the answer; returns 0, because this is not idle time."""
        if (version := int(self._version[0])) != self._seen_version:
            self._renew()
            self._seen_version = version
        chunk, place = self._chunk_of[lane]
        chunk.answer([place])
        return 0.0

    def end(self, lane: int, server: int) -> None:
        """Do nothing."""


class ServedRuntime(Generic[J]):
    """A runtime together with the servers that answer its workers. Closes both.

    Args:
        runtime: The workers.
        inference_requests: The driver's side of their requests.
        servers: Answer the requests; this class starts them.
        lanes: All lanes of the run.
        renew: Copies the newest weights to the actors; called before every call to all workers.
    """

    def __init__(
        self,
        runtime: Runtime[J],
        inference_requests: InferenceRequests,
        servers: Sequence[InferenceServer],
        lanes: Sequence[Share],
        renew: Callable[[], object],
    ) -> None:
        self._runtime, self._inference_requests, self._servers = runtime, inference_requests, servers
        self._lanes, self._renew = lanes, renew
        self.num_workers, self.bytes_up = runtime.num_workers, 0
        for server in servers:
            server.start()

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Submit to one worker. See `Runtime.submit`."""
        return self._runtime.submit(worker, call, *args, **kwargs)

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Copy the newest weights to the actors, then submit. See `Runtime.submit_all`."""
        self._renew()
        return self._runtime.submit_all(call, *args, **kwargs)

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Wait as `Runtime.wait`; also raises the error of a policy that failed in a server."""
        try:
            done = self._runtime.wait(replies, all=all, timeout_s=timeout_s)
        except PacelineError:
            self._raise_failure()  # a failed policy is the cause of what happened to the workers
            raise
        self._raise_failure()
        return done

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Reset the requests of the old worker, then replace it. See `Runtime.respawn`."""
        mine = np.array([lane.first_group for lane in self._lanes if lane.worker == worker])
        self._inference_requests.forget(mine, worker)
        return self._runtime.respawn(worker, call, *args, **kwargs)

    def work(self, count: int) -> None:
        """Compute items. See `Runtime.work`."""
        self._runtime.work(count)

    def pids(self) -> list[int]:
        """Return the workers' process ids. See `Runtime.pids`."""
        return self._runtime.pids()

    def close(self) -> None:
        """End the workers, then the servers. Idempotent."""
        self._runtime.close()
        for server in self._servers:
            server.close()
        self._inference_requests.close()

    def _raise_failure(self) -> None:
        for server in self._servers:
            if server.failure is not None:
                raise server.failure


def serve(
    program: ActingPlan,
    central: Central,
    arena: Arena,
    runtime: Runtime[J],
    inference_requests: InferenceRequests,
    lanes: Sequence[Share],
) -> Runtime[J]:
    """Start one server per device, and return the workers' runtime together with these servers."""
    lines = arena["heartbeat"]
    servers, renewals = [], []

    def stop_workers() -> None:
        lines[:, STOP] = 1

    for number in range(len(central.devices)):
        chunks, renew = chunks_of(program, central, arena, lanes, len(central.devices), number)
        if not chunks:
            break
        renewals.append(renew)
        servers.append(
            InferenceServer(
                number,
                inference_requests,
                chunks,
                whole=central.whole,
                version=arena["version"],
                renew=renew,
                stop_workers=stop_workers,
            )
        )

    def renew_all() -> None:
        for renew in renewals if central.whole else ():
            renew()

    return ServedRuntime(runtime, inference_requests, servers, lanes, renew_all)
