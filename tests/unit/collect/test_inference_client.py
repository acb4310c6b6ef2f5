"""Waiting for central inference counts as idle time of the worker."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import numpy as np

from paceline.collect.inference_client import Mailbox, RemoteActor, mailbox_fields
from paceline.collect.rollout import InterleavedCollectors, RolloutCollector
from paceline.envs.make import EnvRecipe
from paceline.memory.shared import Arena


class Slow:
    """Answers a question of lane 0 after a second, and of lane 1 after two."""

    def ask(self, lane: int, server: int) -> None: ...

    def wait(self, lane: int) -> float:
        return 1.0 + lane

    def end(self, lane: int, server: int) -> None: ...


class Asks:
    """A collector that asks three times."""

    def __init__(self, actor: RemoteActor) -> None:
        self.remote = actor

    def rows(self, _step: int, _into: int) -> Generator[None, None, float]:
        for _ in range(3):
            yield
            self.remote({"obs": np.zeros((1, 4), np.float32)})
        return 0.0


def test_worker_reports_its_idle_time() -> None:
    spec = EnvRecipe(source="CartPole-v1").probe()
    arena = Arena.create(mailbox_fields(spec, 2))
    mailboxes = [Mailbox(arena, spec, slice(lane, lane + 1)) for lane in range(2)]
    actors = [RemoteActor(lane, 0, mailbox) for lane, mailbox in enumerate(mailboxes)]
    collectors = InterleavedCollectors([cast(RolloutCollector, Asks(actor)) for actor in actors])
    collectors.connect(Slow())
    assert collectors.collect(0).waiting_s == 9.0
    assert collectors.collect(3).waiting_s == 9.0  # of this rollout alone
    arena.close()
