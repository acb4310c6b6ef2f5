"""Runtime with worker processes on the nodes of a Ray cluster.

    driver's arena  --weights, once per version-->  node 0: workers 0..W-1     an arena of its own, worker processes
                    <--one buffer per rollout------
                    --weights-->                    node 1: workers W..2W-1
                    <--buffer---

The driver copies what arrives to the place in its arena where a worker of this machine would have written it, so that
the rest of the driver does not depend on the cluster. If a node is lost, each of its workers is reported dead, and
`respawn` starts it on another node (`placement`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import Any, Concatenate, Generic, cast

from paceline.errors import WorkerDied, WorkerError
from paceline.memory.shared import Arena
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.messages import Call as JobCall
from paceline.runtime.pickled_program import pack
from paceline.runtime.protocol import J, P, R, Reply, Share, check_not_forgotten
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.dispatch import Dispatch
from paceline.runtime.ray.node import NodeCall
from paceline.runtime.ray.node_pool import NodePoolSetup, PoolReply
from paceline.runtime.ray.placement import POLL_S, OnNodeLoss, PlacedPool, Placement
from paceline.runtime.ray.transfer import ExecutedCall, Transfer, unpack

IDLE_S = 0.01
"""How long a wait sleeps if no node has anything to do."""
RESULTS_WAIT_S = 10.0
"""How long a node waits for results of posted calls before it returns an empty list."""


@dataclass(frozen=True, slots=True)
class SubmittedCall:
    """A call that was submitted to one worker."""

    reply: Reply[Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class JointCall:
    """A call that was submitted to all workers: each node executes it on all of its workers and answers once."""

    call: JobCall
    args: tuple[Any, ...]
    replies: dict[int, Reply[Any]]
    """Replies of the workers that have not finished it."""
    left: set[int]
    """Workers that have not finished it. One of these without a reply was replaced and has not been given it again."""

    def lacks(self, worker: int) -> bool:
        """Return whether a worker was replaced and has not been given the call again."""
        return worker in self.left and worker not in self.replies

    def replace(self, worker: int) -> None:
        """Note that a worker is replaced: it must execute the call again, even if it had finished it."""
        self.left.add(worker)
        if (reply := self.replies.pop(worker, None)) is not None:
            reply.forgotten = True


class RayRuntime(Generic[J]):
    """The runtime of N nodes with W workers each."""

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
        """Start an actor on every node, which starts its workers. Blocks until all have built their jobs.

        Args:
            transfer: The program of the workers, and the arrays that driver and nodes exchange.
            arena: The driver's arena.
            groups: Number of groups, which are divided among all workers.
            cluster: The reserved nodes. This runtime closes it.
            start_method: How nodes start workers; None for the platform's default.
            preload: Modules that their fork servers import.
            start_timeout_s: How long a node, and then building a job and its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat, and a node without an answer.
            local_gradient: Computes a task of `work` in the driver: nodes have no access to the driver's arena.
            on_node_loss: Whether other nodes take over the workers of a lost node, or the driver waits for a new node.
        """
        self.num_workers = cluster.nodes * cluster.workers
        self.bytes_up = 0
        """Moved from nodes so far."""
        self._transfer, self._arena, self._local_gradient = transfer, arena, local_gradient
        self._commands = 0  # calls to all so far
        self._joint: JointCall | None = None  # the one under way
        self._posted: list[deque[SubmittedCall]] = [deque() for _ in range(self.num_workers)]
        self._dispatch = Dispatch(transfer, arena, cluster)
        self._closed = False
        setup = partial(
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
                cluster.put(pack(transfer, "--num-workers 0 without --runtime ray")),
                setup,
                start_timeout_s=start_timeout_s,
                step_timeout_s=step_timeout_s,
                on_node_loss=on_node_loss,
            )
            undo.callback(self.placement.close)
            self.placement.launch()
            undo.pop_all()

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Send the call to one worker's node. Arguments must be positional, because the transfer reads them.

        If the worker was replaced during a call to all workers, this gives it that call again. Its node starts when all
        its replaced workers have been given the call, so that it still sends one buffer.
        """
        reply: Reply[R] = Reply(worker, call.__name__)
        sent = SubmittedCall(reply, _by_position(args, kwargs))
        if self._joint is not None and self._joint.lacks(worker):
            self._joint.replies[worker] = sent.reply
            return reply
        self._posted[worker].append(sent)
        self._transfer.posted(self._arena, worker, call.__name__, sent.args)
        pool = self.placement.pool_of[worker]
        if pool is not None and worker not in self.placement.lost:
            self._call(pool, pool.node.actor.post, call, sent.args, worker)
        return reply

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Send the call to every node, once per node. Does not block."""
        replies: list[Reply[R]] = [Reply(worker, call.__name__) for worker in range(self.num_workers)]
        left = set(range(self.num_workers))
        self._joint = JointCall(call, _by_position(args, kwargs), dict(enumerate(replies)), left)
        self._commands += 1
        self.placement.move_back()
        for pool in self.placement.pools:
            pool.joint_begun = False
        self._begin()
        return replies

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Receive results and copy their arrays into the driver's arena, until enough of the replies are done."""
        check_not_forgotten(replies)
        if not all:
            self.placement.move_back()
        end, enough, listened = perf_counter() + timeout_s, len(replies) if all else min(1, len(replies)), False
        while True:
            done = [reply for reply in replies if reply.done]
            # A wait for any reply returns results first, and the next wait raises the loss. In a wait for all, a lost
            # worker has to execute the call again in any case, so the loss is raised at once.
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
        """Receive what the nodes have sent, or send before the timeout."""
        placement = self.placement
        joint_calls = {pool.joint_call: pool for pool in placement.pools if pool.joint_call is not None}
        busy = [pool for pool in placement.pools if any(self._posted[share.worker] for share in pool.shares)]
        for pool in busy:
            if pool.results_call is None:
                pool.results_call = pool.node.actor.results.options(concurrency_group="results").remote(
                    pool.key, RESULTS_WAIT_S
                )
            news = self._dispatch.due(pool, "collect", self._commands, only_news=True)
            if news:
                pool.node.actor.renew.remote(pool.key, tuple(news), *news.values())
        results_calls = {pool.results_call: pool for pool in busy}
        nodes = [pool.node for pool in (*joint_calls.values(), *busy)]
        if not nodes:
            sleep(min(timeout_s, IDLE_S))
        for reference in placement.wait([*joint_calls, *results_calls], timeout_s, nodes):
            if reference in joint_calls:
                pool = joint_calls[reference]
                pool.joint_call = None
                self._store_joint(pool, placement.answer(pool, reference))
                continue
            pool = results_calls[reference]
            pool.results_call = None
            for pool_reply in placement.results(pool, reference):
                worker = pool.first + pool_reply.worker
                sent = self._posted[worker].popleft()
                executed = ExecutedCall(sent.reply.name, sent.args, [pool_reply.value])
                self._store(pool_reply, executed, [pool.share(worker)])
                sent.reply.put(pool_reply.value)

    def _store_joint(self, pool: PlacedPool, pool_reply: PoolReply | None) -> None:
        """Store a node's results of the call to all workers."""
        if pool_reply is None or self._joint is None:
            return
        executed = ExecutedCall(self._joint.call.__name__, self._joint.args, pool_reply.value)
        self._store(pool_reply, executed, pool.shares)
        for share, one in zip(pool.shares, pool_reply.value, strict=True):
            self._joint.replies.pop(share.worker).put(one)
            self._joint.left.discard(share.worker)

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Replace a worker, on another node if its node was lost. Blocks until the new one has executed the call."""
        placement, args_ = self.placement, _by_position(args, kwargs)
        for sent in self._posted[worker]:
            sent.reply.forgotten = True
        self._posted[worker].clear()
        if self._joint is not None:
            self._joint.replace(worker)
        pool = placement.pool_of[worker] or placement.place(worker)
        actor = pool.node.actor
        reference = self._call(pool, actor.tell if worker in pool.new else actor.respawn, call, args_, worker)
        pool_reply = placement.await_answer(pool, reference)
        pool.new.discard(worker)  # also after a failure: the next attempt starts another process
        if pool_reply is None:
            raise WorkerDied(placement.lost.get(worker, f"{pool.name}: another worker died."), worker)
        placement.lost.pop(worker, None)
        self._store(pool_reply, ExecutedCall(call.__name__, args_, [pool_reply.value]), [pool.share(worker)])
        return cast(R, pool_reply.value)

    def work(self, count: int) -> None:
        """Compute tasks 0 to count - 1 in the driver.

        Raises:
            WorkerError: There is no `local_gradient`.
        """
        if self._local_gradient is None:
            raise WorkerError(
                "work: nodes have no access to the driver's memory. Pass `local_gradient` to the runtime."
            )
        for task in range(count):
            self._local_gradient(task)

    def pids(self) -> list[int]:
        """Return no ids: the processes run on other machines."""
        return []

    def places(self) -> list[dict[str, Any]]:
        """Return for each pool its node, host, number of workers, and first and last group."""
        return [
            {
                "node": pool.node.bundle,
                "host": pool.node.about.get("host"),
                "workers": len(pool.shares),
                "groups": [pool.shares[0].first_group, pool.shares[-1].first_group + pool.shares[-1].groups - 1],
            }
            for pool in self.placement.pools
        ]

    def close(self) -> None:
        """End all actors, and close the cluster. Idempotent."""
        if not self._closed:
            self._closed = True
            self.placement.close()

    def _begin(self) -> None:
        """Start the call to all workers on every node that is ready, or continue it after workers were replaced.

        A node is ready when none of its workers is lost and its replaced workers have been given the call again.
        """
        joint = self._joint
        if joint is None:
            return
        for pool in self.placement.pools:
            if pool.joint_call is not None or self.placement.waits(pool):
                continue
            if any(share.worker not in joint.replies for share in pool.shares):
                continue
            if pool.joint_begun:
                pool.joint_call = pool.node.actor.finish.remote(pool.key)
            else:
                pool.joint_begun = True
                pool.joint_call = self._call(pool, pool.node.actor.do, joint.call, joint.args)

    def _call(
        self, pool: PlacedPool, method: Any, call: JobCall, args: tuple[Any, ...], worker: int | None = None
    ) -> Any:
        """Send a call to a pool, or to one worker of it, with the loads that it needs. Returns a reference."""
        mine = pool.shares if worker is None else [pool.share(worker)]
        due = self._dispatch.due(pool, call.__name__, self._commands)
        trimmed = self._transfer.trimmed(call.__name__, args, mine)
        index = 0 if worker is None else worker - pool.first
        return method.remote(NodeCall(pool.key, tuple(due), call, trimmed, index), *due.values())

    def _store(self, pool_reply: PoolReply, call: ExecutedCall, mine: Sequence[Share]) -> None:
        """Copy the arrays of a reply into the driver's arena."""
        if pool_reply.buffer is not None:
            self.bytes_up += pool_reply.buffer.nbytes
            unpack(pool_reply.buffer, self._transfer.up(call, self._arena, None, mine))


def _by_position(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call, which must all be positional.

    Raises:
        TypeError: Some are keyword arguments, where the transfer would not find them.
    """
    if kwargs:
        raise TypeError(f"arguments of calls to nodes must be positional (got keywords {', '.join(kwargs)}).")
    return args
