"""A cluster without Ray: nodes are objects of this process, and everything sent to them is pickled."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import cloudpickle

from paceline.runtime.ray.cluster import Node
from paceline.runtime.ray.node import RayNode


class Gone(Exception):
    """The node of a call is lost."""


class _Method:
    def __init__(self, actor: LoopbackActor, name: str, group: str = "") -> None:
        self._actor, self._name, self._group = actor, name, group

    def options(self, *, concurrency_group: str) -> _Method:
        return _Method(self._actor, self._name, concurrency_group)

    def remote(self, *args: Any) -> Future[Any]:
        return self._actor.call(self._name, self._group, args)


class LoopbackActor:
    """An actor whose calls of one concurrency group run one after another."""

    def __init__(self) -> None:
        self._node = RayNode()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._open: list[Future[Any]] = []
        self.alive = True

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)

    def call(self, name: str, group: str, args: tuple[Any, ...]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._open.append(answer)
        if not self.alive:
            answer.set_exception(Gone(name))
            return answer
        sent = cloudpickle.dumps([arg.result() if isinstance(arg, Future) else arg for arg in args])
        threads = self._threads.setdefault(group, ThreadPoolExecutor(1))

        def run() -> None:
            try:
                said = pickle.loads(pickle.dumps(getattr(self._node, name)(*pickle.loads(sent))))
                if self.alive:
                    answer.set_result(said)
            except futures.InvalidStateError:
                return
            except Exception as error:
                if self.alive:
                    answer.set_exception(error)

        threads.submit(run)
        return answer

    def kill(self) -> None:
        """Lose the node: all pending calls fail."""
        if self.alive:
            self.alive = False
            for answer in self._open:
                if not answer.done():
                    answer.set_exception(Gone("killed"))
            self._threads.setdefault("", ThreadPoolExecutor(1)).submit(self._node.close).result()
            for threads in self._threads.values():
                threads.shutdown(wait=False)


class LoopbackCluster:
    """The interface of `RayCluster`."""

    lost = (Gone,)

    def __init__(self, nodes: int, workers: int) -> None:
        self.nodes, self.workers = nodes, workers
        self.down: set[int] = set()
        """Bundles without a node."""

    def start(self, bundle: int) -> Node:
        actor = LoopbackActor()
        return Node(bundle, actor, actor.hello.remote())

    def is_ready(self, node: Node, timeout_s: float) -> bool:
        done, _ = futures.wait([node.hello], timeout_s)
        if not done or node.hello.exception():
            return False
        node.about = node.hello.result()
        return True

    def placed(self, bundle: int) -> bool:
        return bundle not in self.down

    def put(self, value: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(pickle.loads(pickle.dumps(value)))
        return answer

    def put_parts(self, parts: Any) -> Future[Any]:
        return self.put(parts)

    def get(self, reference: Future[Any]) -> Any:
        return reference.result()

    def ready(self, references: Sequence[Future[Any]], timeout_s: float) -> list[Future[Any]]:
        done, _ = futures.wait(references, timeout_s, futures.FIRST_COMPLETED)
        return list(done)

    def kill(self, node: Node) -> None:
        node.actor.kill()

    def close(self, nodes: Sequence[Node] = ()) -> None:
        for node in nodes:
            node.actor.kill()
