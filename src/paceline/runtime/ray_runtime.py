"""Workers on the nodes of a Ray cluster, behind the same protocol as workers on this machine.

    driver's arena  --weights, once a version-->  node 0: workers 0..W-1     an arena of its own, worker processes
                    <--one buffer a rollout-----
                    --weights-->                  node 1: workers W..2W-1
                    <--buffer---

What arrives is put where a worker of this machine would have written it, so that nobody else has to know. A node that
is lost takes its workers with it: each is reported dead, and finds a new home when it is to be replaced (`ray_fleet`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import cloudpickle

from paceline.errors import ConfigError, WorkerDied, WorkerError
from paceline.memory.shared import Arena
from paceline.runtime.crew import CrewOrder, Said
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.freight import Did, Freight, unpack
from paceline.runtime.protocol import Share
from paceline.runtime.ray_cluster import RayCluster
from paceline.runtime.ray_dispatch import Dispatch
from paceline.runtime.ray_fleet import POLL_S, Fleet, HostedCrew, OnNodeLoss
from paceline.runtime.ray_node import Call

HEAR_S = 10.0
"""How long a node listens before it says that nothing was said."""
NOTHING: tuple[str, tuple[Any, ...]] = "", ()
"""No command is under way."""


class RayRuntime:
    """N nodes with W workers each."""

    def __init__(
        self,
        freight: Freight,
        arena: Arena,
        groups: int,
        cluster: RayCluster,
        *,
        start_method: StartMethod | None = None,
        preload: Sequence[str] = (),
        start_timeout_s: float = 120.0,
        step_timeout_s: float = 60.0,
        hand: Callable[[int], None] | None = None,
        on_node_loss: OnNodeLoss = "continue",
    ) -> None:
        """Start an actor on every node, and its workers.

        Args:
            freight: The program, and what travels for it.
            arena: The driver's.
            groups: Groups to share out.
            cluster: Room for them. Is closed with this.
            start_method: How nodes start workers; None for the platform's default.
            preload: Modules that their fork servers import.
            start_timeout_s: How long a node, and then building a job and its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat, and a node without an answer.
            hand: Does an item of `work` right here: nodes do not see the driver's arena.
            on_node_loss: Whether the nodes that are left take over, or a new one is waited for.
        """
        self.num_workers, self.nodes = cluster.nodes * cluster.workers, cluster.nodes
        self.bytes_up = 0
        """Moved from nodes so far."""
        self._freight, self._arena, self._hand = freight, arena, hand
        self._asked, self._commands = NOTHING, 0
        self._results: dict[int, Any] = {}
        self._posted: list[deque[tuple[str, tuple[Any, ...]]]] = [deque() for _ in range(self.num_workers)]
        self._dispatch = Dispatch(freight, arena, cluster)
        self._closed = False
        order = partial(
            CrewOrder,
            start_method=start_method,
            preload=tuple(preload),
            start_timeout_s=start_timeout_s,
            step_timeout_s=step_timeout_s,
        )
        with ExitStack() as undo:
            undo.callback(cluster.close)
            self.fleet = Fleet(
                cluster,
                groups,
                cluster.put(_packed(freight)),
                lambda first, groups, workers: order(first_group=first, groups=groups, workers=workers),
                start_timeout_s=start_timeout_s,
                step_timeout_s=step_timeout_s,
                on_node_loss=on_node_loss,
            )
            undo.callback(self.fleet.close)
            self.fleet.launch()
            undo.pop_all()

    def run(self, command: str, *args: Any) -> list[Any]:
        """Both halves."""
        self.start(command, *args)
        return self.finish()

    def start(self, command: str, *args: Any) -> None:
        """Tell every node."""
        self._asked, self._results = (command, args), {}
        self._commands += 1
        self.fleet.welcome()
        for crew in self.fleet.crews:
            crew.begun = False
            if not self.fleet.waits(crew):
                self._begin(crew)

    def finish(self) -> list[Any]:
        """Wait for every node, and put what it sends where it belongs."""
        fleet = self.fleet
        while True:
            # Whoever is lost is put back to where the command began, and has to do it again.
            for worker in fleet.lost:
                self._results.pop(worker, None)
            fleet.raise_lost()
            if len(self._results) == self.num_workers:
                break
            running = {crew.running: crew for crew in fleet.crews if crew.running is not None}
            for reference in fleet.wait(list(running), POLL_S, [crew.node for crew in running.values()]):
                crew = running[reference]
                crew.running = None
                said = fleet.answer(crew, reference)
                if said is not None:
                    self._take_in(said, Did(*self._asked, said.value), crew.shares)
                    self._results |= {share.worker: one for share, one in zip(crew.shares, said.value, strict=True)}
        results = [self._results[worker] for worker in range(self.num_workers)]
        self._asked, self._results = NOTHING, {}
        return results

    def post(self, worker: int, command: str, *args: Any) -> None:
        """Tell one worker's node."""
        self._posted[worker].append((command, args))
        self._freight.posted(self._arena, worker, command, args)
        crew = self.fleet.home[worker]
        if crew is not None and worker not in self.fleet.lost:
            self._call(crew, "post", command, args, worker)

    def take(self, timeout_s: float) -> list[tuple[int, Any]]:
        """What nodes have heard from their workers."""
        fleet = self.fleet
        fleet.welcome()
        fleet.raise_lost()
        busy = [crew for crew in fleet.crews if any(self._posted[share.worker] for share in crew.shares)]
        for crew in busy:
            if crew.hearing is None:
                crew.hearing = crew.node.actor.hear.options(concurrency_group="hear").remote(crew.key, HEAR_S)
            news = self._dispatch.due(crew, "collect", self._commands, only_news=True)
            if news.names:
                crew.node.actor.renew.remote(Call(crew.key, news.names), *news.loads)
        hearing = {crew.hearing: crew for crew in busy}
        answers: list[tuple[int, Any]] = []
        for reference in fleet.wait(list(hearing), timeout_s, [crew.node for crew in busy]):
            crew = hearing[reference]
            crew.hearing = None
            for said in fleet.heard(crew, reference):
                worker = crew.first + said.worker
                command, args = self._posted[worker].popleft()
                self._take_in(said, Did(command, args, [said.value]), [crew.share(worker)])
                answers.append((worker, said.value))
        if not answers:
            fleet.raise_lost()
        return answers

    def respawn(self, worker: int, command: str, *args: Any) -> Any:
        """A new process in its place; where its node was lost, on another one."""
        fleet = self.fleet
        self._posted[worker].clear()
        crew = fleet.home[worker] or fleet.settle(worker)
        reference = self._call(crew, "tell" if worker in crew.new else "respawn", command, args, worker)
        said = fleet.await_answer(crew, reference)
        crew.new.discard(worker)  # whatever came of it: the next attempt is a new process
        if said is None:
            raise WorkerDied(fleet.lost.get(worker, f"{crew.name}: another worker died."), worker)
        fleet.lost.pop(worker, None)
        self._take_in(said, Did(command, args, [said.value]), [crew.share(worker)])
        if self._asked is not NOTHING and not fleet.waits(crew):
            self._begin(crew)
        return said.value

    def work(self, count: int) -> None:
        """By the driver's own hand."""
        if self._hand is None:
            raise WorkerError("work: nodes do not see the driver's memory. Give it a hand of its own.")
        for item in range(count):
            self._hand(item)

    def pids(self) -> list[int]:
        """None that could be looked up on this machine."""
        return []

    def places(self) -> list[dict[str, Any]]:
        """Which node has which groups."""
        return [
            {
                "node": crew.node.bundle,
                "host": crew.node.about.get("host"),
                "workers": len(crew.shares),
                "groups": [crew.shares[0].first_group, crew.shares[-1].first_group + crew.shares[-1].groups - 1],
            }
            for crew in self.fleet.crews
        ]

    def close(self) -> None:
        """End all actors. Idempotent."""
        if not self._closed:
            self._closed = True
            self.fleet.close()

    def _begin(self, crew: HostedCrew) -> None:
        """Have a crew do what was asked; or go on with it, where a worker of it was replaced."""
        if crew.begun:
            crew.running = crew.node.actor.finish.remote(crew.key)
            return
        crew.begun = True
        crew.running = self._call(crew, "do", *self._asked)

    def _call(
        self, crew: HostedCrew, method: str, command: str, args: tuple[Any, ...], worker: int | None = None
    ) -> Any:
        """Have a crew, or one worker of it, do a command; it is told first what it has to know."""
        mine = crew.shares if worker is None else [crew.share(worker)]
        due = self._dispatch.due(crew, command, self._commands)
        trimmed = self._freight.trimmed(command, args, mine)
        call = Call(crew.key, due.names, command, trimmed, 0 if worker is None else worker - crew.first)
        return getattr(crew.node.actor, method).remote(call, *due.loads)

    def _take_in(self, said: Said, did: Did, mine: Sequence[Share]) -> None:
        """Put what has arrived where it belongs."""
        if said.parcel is not None:
            self.bytes_up += said.parcel.nbytes
            unpack(said.parcel, self._freight.up(did, self._arena, None, mine))


def _packed(freight: Freight) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(freight)
    except Exception as error:
        raise ConfigError(
            f"the program cannot be sent to nodes ({type(error).__name__}: {error}). Create what cannot be pickled "
            "inside the env function instead of capturing it."
        ) from error
    return packed
