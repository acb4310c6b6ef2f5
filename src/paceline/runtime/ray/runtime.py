"""Workers on the nodes of a Ray cluster, behind the same protocol as workers on this machine.

    driver's arena  --weights, once a version-->  node 0: workers 0..W-1     an arena of its own, worker processes
                    <--one buffer a rollout-----
                    --weights-->                  node 1: workers W..2W-1
                    <--buffer---

What arrives is put where a worker of this machine would have written it, so that nobody else has to know. A node that
is lost takes its workers with it: each is reported dead, and finds a new home when it is to be replaced (`ray_fleet`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import cloudpickle

from paceline.errors import ConfigError, WorkerDied, WorkerError
from paceline.memory.shared import Arena
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.messages import Call as JobCall
from paceline.runtime.protocol import Job, Reply, Share, check_not_forgotten
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.dispatch import Dispatch
from paceline.runtime.ray.node import NodeCall
from paceline.runtime.ray.node_pool import NodePoolSetup, Said
from paceline.runtime.ray.placement import POLL_S, OnNodeLoss, PlacedPool, Placement
from paceline.runtime.ray.transfer import Did, Transfer, unpack

IDLE_S = 0.01
"""How long to wait where no node has anything to do."""
HEAR_S = 10.0
"""How long a node listens before it says that nothing was said."""

J = TypeVar("J", bound=Job)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was submitted to one worker."""

    reply: Reply[Any]
    call: JobCall
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Joint:
    """A call that was submitted to all workers at once: each node executes it as a whole, and answers once."""

    call: JobCall
    args: tuple[Any, ...]
    replies: dict[int, Reply[Any]]
    """Of workers that take part and are not done."""
    left: set[int]
    """Workers that are not done. One that is here and has no reply was replaced, and has yet to join again."""

    def lacks(self, worker: int) -> bool:
        """Whether a worker has to execute the call, and nobody has submitted it since the worker was replaced."""
        return worker in self.left and worker not in self.replies

    def replace(self, worker: int) -> None:
        """A worker is replaced: done or not, it goes back to where the call began, and executes it once more."""
        self.left.add(worker)
        if (reply := self.replies.pop(worker, None)) is not None:
            reply.forgotten = True


class RayRuntime(Generic[J]):
    """N nodes with W workers each."""

    def __init__(
        self,
        transfer: Transfer[J],
        arena: Arena,
        groups: int,
        cluster: RayCluster,
        *,
        start_method: StartMethod | None = None,
        preload: Sequence[str] = (),
        start_timeout_s: float = 120.0,
        step_timeout_s: float = 60.0,
        local_gradient: Callable[[int], None] | None = None,
        on_node_loss: OnNodeLoss = "continue",
    ) -> None:
        """Start an actor on every node, and its workers.

        Args:
            transfer: The program, and what travels for it.
            arena: The driver's.
            groups: Groups to share out.
            cluster: Room for them. Is closed with this.
            start_method: How nodes start workers; None for the platform's default.
            preload: Modules that their fork servers import.
            start_timeout_s: How long a node, and then building a job and its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat, and a node without an answer.
            local_gradient: Does an item of `work` right here: nodes do not see the driver's arena.
            on_node_loss: Whether the nodes that are left take over, or a new one is waited for.
        """
        self.num_workers, self.nodes = cluster.nodes * cluster.workers, cluster.nodes
        self.bytes_up = 0
        """Moved from nodes so far."""
        self._freight, self._arena, self._local_gradient = transfer, arena, local_gradient
        self._commands = 0  # calls to all so far
        self._joint: Joint | None = None  # the one under way
        self._posted: list[deque[Sent]] = [deque() for _ in range(self.num_workers)]
        self._dispatch = Dispatch(transfer, arena, cluster)
        self._closed = False
        order = partial(
            NodePoolSetup,
            start_method=start_method,
            preload=tuple(preload),
            start_timeout_s=start_timeout_s,
            step_timeout_s=step_timeout_s,
        )
        with ExitStack() as undo:
            undo.callback(cluster.close)
            self.placement = Placement(
                cluster,
                groups,
                cluster.put(_packed(transfer)),
                lambda first, groups, workers: order(first_group=first, groups=groups, workers=workers),
                start_timeout_s=start_timeout_s,
                step_timeout_s=step_timeout_s,
                on_node_loss=on_node_loss,
            )
            undo.callback(self.placement.close)
            self.placement.launch()
            undo.pop_all()

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Send the call to one worker's node. Arguments go by position: the freight reads them there.

        A worker that was replaced in the middle of a call to all joins that call again by this; its node begins when
        all of the node's lost workers have, so that it still sends one buffer.
        """
        reply: Reply[R] = Reply(worker, call.__name__)
        sent = Sent(reply, call, _by_position(args, kwargs))
        if self._joint is not None and self._joint.lacks(worker):
            self._joint.replies[worker] = sent.reply
            return reply
        self._posted[worker].append(sent)
        self._freight.posted(self._arena, worker, call.__name__, sent.args)
        pool = self.placement.pool_of[worker]
        if pool is not None and worker not in self.placement.lost:
            self._call(pool, pool.node.actor.post, call, sent.args, worker)
        return reply

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Send the call to every node, once."""
        replies: list[Reply[R]] = [Reply(worker, call.__name__) for worker in range(self.num_workers)]
        workers = range(self.num_workers)
        self._joint = Joint(call, _by_position(args, kwargs), dict(zip(workers, replies, strict=True)), set(workers))
        self._commands += 1
        self.placement.welcome()
        for pool in self.placement.crews:
            pool.begun = False
        self._begin()
        return replies

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Listen to the nodes, and put what they send where it belongs, until enough of the replies are done."""
        check_not_forgotten(replies)
        if not all:
            self.placement.welcome()
        end, enough, listened = perf_counter() + timeout_s, len(replies) if all else min(1, len(replies)), False
        while True:
            done = [reply for reply in replies if reply.done]
            # Results first, where any will do: the next wait raises the loss. Of all workers, a lost one has to begin
            # again, whether or not it was done.
            if all or not done or not listened:
                if self._joint is not None:
                    self._joint.left.update(self.placement.lost)
                self.placement.raise_lost()
            if len(done) >= enough or (listened and perf_counter() >= end):
                break
            self._begin()
            self._listen(max(0.0, min(POLL_S, end - perf_counter())))
            listened = True
        if self._joint is not None and not self._joint.left:
            self._joint = None
        return done

    def _listen(self, timeout_s: float) -> None:
        """Take in what nodes have sent by then, or send within that time."""
        placement = self.placement
        running = {pool.running: pool for pool in placement.crews if pool.running is not None}
        busy = [pool for pool in placement.crews if any(self._posted[share.worker] for share in pool.shares)]
        for pool in busy:
            if pool.hearing is None:
                pool.hearing = pool.node.actor.hear.options(concurrency_group="hear").remote(pool.key, HEAR_S)
            news = self._dispatch.due(pool, "collect", self._commands, only_news=True)
            if news.names:
                pool.node.actor.renew.remote(NodeCall(pool.key, news.names), *news.loads)
        hearing = {pool.hearing: pool for pool in busy}
        nodes = [pool.node for pool in (*running.values(), *busy)]
        if not nodes:
            sleep(min(timeout_s, IDLE_S))
        for reference in placement.wait([*running, *hearing], timeout_s, nodes):
            if reference in running:
                pool = running[reference]
                pool.running = None
                self._take_joint(pool, placement.answer(pool, reference))
                continue
            pool = hearing[reference]
            pool.hearing = None
            for said in placement.heard(pool, reference):
                worker = pool.first + said.worker
                sent = self._posted[worker].popleft()
                self._take_in(said, Did(sent.reply.name, sent.args, [said.value]), [pool.share(worker)])
                sent.reply.put(said.value)

    def _take_joint(self, pool: PlacedPool, said: Said | None) -> None:
        """Take in a node's results of the call to all."""
        if said is None or self._joint is None:
            return
        self._take_in(said, Did(self._joint.call.__name__, self._joint.args, said.value), pool.shares)
        for share, one in zip(pool.shares, said.value, strict=True):
            self._joint.replies.pop(share.worker).put(one)
            self._joint.left.discard(share.worker)

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """A new process in its place; where its node was lost, on another one. Blocks until that executed the call."""
        placement, args_ = self.placement, _by_position(args, kwargs)
        for sent in self._posted[worker]:
            sent.reply.forgotten = True
        self._posted[worker].clear()
        if self._joint is not None:
            self._joint.replace(worker)
        pool = placement.pool_of[worker] or placement.settle(worker)
        actor = pool.node.actor
        reference = self._call(pool, actor.tell if worker in pool.new else actor.respawn, call, args_, worker)
        said = placement.await_answer(pool, reference)
        pool.new.discard(worker)  # whatever came of it: the next attempt is a new process
        if said is None:
            raise WorkerDied(placement.lost.get(worker, f"{pool.name}: another worker died."), worker)
        placement.lost.pop(worker, None)
        self._take_in(said, Did(call.__name__, args_, [said.value]), [pool.share(worker)])
        return cast(R, said.value)

    def work(self, count: int) -> None:
        """By the driver's own hand."""
        if self._local_gradient is None:
            raise WorkerError("work: nodes do not see the driver's memory. Give it a hand of its own.")
        for item in range(count):
            self._local_gradient(item)

    def pids(self) -> list[int]:
        """None that could be looked up on this machine."""
        return []

    def places(self) -> list[dict[str, Any]]:
        """Which node has which groups."""
        return [
            {
                "node": pool.node.bundle,
                "host": pool.node.about.get("host"),
                "workers": len(pool.shares),
                "groups": [pool.shares[0].first_group, pool.shares[-1].first_group + pool.shares[-1].groups - 1],
            }
            for pool in self.placement.crews
        ]

    def close(self) -> None:
        """End all actors. Idempotent."""
        if not self._closed:
            self._closed = True
            self.placement.close()

    def _begin(self) -> None:
        """Have nodes begin the call to all, or go on with it where workers were replaced.

        A node waits until none of its workers is lost, and until those that were replaced have joined the call again.
        """
        joint = self._joint
        if joint is None:
            return
        for pool in self.placement.crews:
            if pool.running is not None or self.placement.waits(pool):
                continue
            if any(share.worker not in joint.replies for share in pool.shares):
                continue
            if pool.begun:
                pool.running = pool.node.actor.finish.remote(pool.key)
            else:
                pool.begun = True
                pool.running = self._call(pool, pool.node.actor.do, joint.call, joint.args)

    def _call(
        self, pool: PlacedPool, method: Any, call: JobCall, args: tuple[Any, ...], worker: int | None = None
    ) -> Any:
        """Have a crew, or one worker of it, execute a call; it is told first what it has to know."""
        mine = pool.shares if worker is None else [pool.share(worker)]
        due = self._dispatch.due(pool, call.__name__, self._commands)
        trimmed = self._freight.trimmed(call.__name__, args, mine)
        of_crew = 0 if worker is None else worker - pool.first
        return method.remote(NodeCall(pool.key, due.names, call, trimmed, of_crew), *due.loads)

    def _take_in(self, said: Said, did: Did, mine: Sequence[Share]) -> None:
        """Put what has arrived where it belongs."""
        if said.parcel is not None:
            self.bytes_up += said.parcel.nbytes
            unpack(said.parcel, self._freight.up(did, self._arena, None, mine))


def _by_position(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call.

    Raises:
        TypeError: Some go by name, where the freight would not find them.
    """
    if kwargs:
        raise TypeError(f"arguments of calls to nodes go by position (by name: {', '.join(kwargs)}).")
    return args


def _packed(transfer: Transfer[Job]) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(transfer)
    except Exception as error:
        raise ConfigError(
            f"the program cannot be sent to nodes ({type(error).__name__}: {error}). Create what cannot be pickled "
            "inside the env function instead of capturing it."
        ) from error
    return packed
