"""Questions: what workers ask the driver in the middle of a command, many thousand times a second.

    worker: data in the arena, ASKED += 1  --(signal, if the server sleeps)-->  server
            data in the arena       <--(signal, if the worker sleeps)--  ANSWERED = ASKED

The other way round than bells: here the worker has the initiative, does its command as ever, and the driver serves.
A *lane* is whoever asks one question at a time: a part of a worker's envs. A worker with two lanes goes on with one
while the question of the other is being answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from paceline.memory.lines import BEAT, STOP
from paceline.memory.shared import Arena, Field
from paceline.runtime.bells import LOOK_S
from paceline.runtime.fences import fence, in_order
from paceline.runtime.signals import Signal, Watch, new_signal

ASKED, ANSWERED, ACTIVE = range(3)
"""Of a lane's line: questions, answers, and whether it is going to ask more."""
LONGEST_WAIT_S = 60.0
"""How long a worker that waits for an answer says that it is alive."""
ASLEEP = 0
"""Of a worker's or a server's line: whether a signal is needed."""


def question_fields(lanes: int, workers: int, servers: int) -> list[Field]:
    """What an arena must hold: a cache line for each of them."""
    return [
        Field.of("questions/lanes", (lanes, 8), np.int64),
        Field.of("questions/workers", (max(1, workers), 8), np.int64),
        Field.of("questions/servers", (servers, 8), np.int64),
    ]


class Asker:
    """A worker's end.

    Args:
        arena: Holds `question_fields`.
        worker: Which.
        servers: Their signals.
        answered: Its own.
    """

    def __init__(self, arena: Arena, worker: int, servers: Sequence[Signal], answered: Signal) -> None:
        self._lanes: NDArray[np.int64] = arena["questions/lanes"]
        self._own, self._servers_asleep = arena["questions/workers"][worker], arena["questions/servers"]
        self._line = arena["heartbeat"][worker]
        self._servers, self._answered = servers, answered
        self._watch = Watch([answered.waitable])

    def ask(self, lane: int, server: int) -> None:
        """Say that the lane's data are there, and that it is going to ask again."""
        in_order()
        self._lanes[lane, ACTIVE] = 1
        self._lanes[lane, ASKED] += 1
        self._wake(server)

    def end(self, lane: int, server: int) -> None:
        """The lane has asked all it wanted: nobody need wait for it."""
        self._lanes[lane, ACTIVE] = 0
        self._wake(server)

    def wait(self, lane: int) -> float:
        """Return when the lane's question is answered, or when the run is over and nobody will; how long that was."""
        began, line, looks = perf_counter(), self._lanes[lane], 0
        while line[ANSWERED] != line[ASKED] and not self._line[STOP]:
            if 0 < looks < LONGEST_WAIT_S / LOOK_S:
                self._line[BEAT] += 1  # it waits for somebody else, who may hang; not for ever, since the server may
            looks += 1
            self._own[ASLEEP] = 1
            fence()
            self._watch.wait(0.0 if line[ANSWERED] == line[ASKED] else LOOK_S)
            self._own[ASLEEP] = 0
            self._answered.clear()
        in_order()
        return perf_counter() - began

    def _wake(self, server: int) -> None:
        fence()
        if self._servers_asleep[server, ASLEEP]:
            self._servers[server].set()


@dataclass(frozen=True, slots=True)
class WorkerQuestions:
    """A worker's end, as it is started with it."""

    servers: tuple[Signal, ...]
    answered: Signal

    def open(self, arena: Arena, worker: int) -> Asker:
        """Inside the worker."""
        return Asker(arena, worker, self.servers, self.answered)


class Questions:
    """The driver's end.

    Args:
        arena: Holds `question_fields`.
    """

    def __init__(self, arena: Arena) -> None:
        self._lanes: NDArray[np.int64] = arena["questions/lanes"]
        self._workers, self._servers = arena["questions/workers"], arena["questions/servers"]
        self._asked = [new_signal() for _ in self._servers]
        self._answered = [new_signal() for _ in self._workers]
        self._watches = [Watch([signal.waitable]) for signal in self._asked]

    def theirs(self, worker: int) -> WorkerQuestions:
        """What a worker is started with."""
        return WorkerQuestions(tuple(self._asked), self._answered[worker])

    def look(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """[lanes, 3] how these stand: ASKED, ANSWERED, ACTIVE."""
        lines: NDArray[np.int64] = self._lanes[lanes, : ACTIVE + 1]
        in_order()
        return lines

    def sleep(self, server: int, lanes: NDArray[np.int64], seen: NDArray[np.int64]) -> None:
        """Wait until some lane asks or ends that had not when it was looked at, or for a while."""
        self._servers[server, ASLEEP] = 1
        fence()
        news = not np.array_equal(self._lanes[lanes, : ACTIVE + 1], seen)
        self._watches[server].wait(0.0 if news else LOOK_S)
        self._servers[server, ASLEEP] = 0
        self._asked[server].clear()

    def answer(self, lane: int, worker: int) -> None:
        """Say that the answer is there."""
        in_order()
        self._lanes[lane, ANSWERED] = self._lanes[lane, ASKED]
        fence()
        if self._workers[worker, ASLEEP]:
            self._answered[worker].set()

    def forget(self, lanes: NDArray[np.int64], worker: int) -> None:
        """A worker is replaced: the new one has asked nothing."""
        self._lanes[lanes] = 0
        self._workers[worker] = 0
        for server in range(len(self._asked)):
            self.wake(server)  # others of its chunks need not wait for it now

    def wake(self, server: int) -> None:
        """Have a server look around."""
        self._asked[server].set()

    def close(self) -> None:
        """Let go of the signals. Idempotent."""
        for signal in (*self._asked, *self._answered):
            signal.close()
