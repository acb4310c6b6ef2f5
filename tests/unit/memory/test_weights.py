"""Published weights: one vector and its version, without a copy on the CPU."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from paceline.memory.shared import Arena, Field
from paceline.memory.weights import Snapshots, Weights


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(Weights.fields(10))
    yield arena
    arena.close()


def test_publishing_the_vector_itself_copies_nothing(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights(arena)
    copies: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: copies.append(other))
    assert weights.publish(weights.vector.detach()) == 1
    assert not copies
    weights.publish(torch.ones(10))
    assert len(copies) == 1


def test_showing_copies_a_private_vector_without_a_new_version(arena: Arena) -> None:
    weights, learned = Weights(arena), torch.arange(10.0)
    show = weights.showing(learned)
    assert show is not None
    for _ in range(2):
        learned += 1
        assert weights.vector.tolist() != learned.tolist(), "before they are shown"
        show()
        assert weights.vector.tolist() == learned.tolist()
    assert weights.version == 0
    assert weights.showing(weights.vector.detach()) is None, "they are there already"


def test_versions_count_publications_and_are_shared(arena: Arena) -> None:
    writer, reader = Weights(arena), Weights(arena)
    assert writer.version == reader.version == 0
    assert [writer.publish(torch.full((10,), float(n))) for n in (1, 2)] == [1, 2]
    assert reader.version == 2
    assert reader.vector.tolist() == [2.0] * 10
    assert reader.vector.data_ptr() == writer.vector.data_ptr() == arena["weights"].ctypes.data
    writer.version = 7
    assert reader.version == 7


def test_the_fingerprint_sees_every_bit(arena: Arena) -> None:
    weights = Weights(arena)
    before = weights.sha256()
    assert before == Weights(arena).sha256()
    weights.vector[9] = -0.0
    assert weights.sha256() != before
    weights.publish(torch.zeros(10))
    assert weights.sha256() == before, "the version is no part of it"


def add_one(arena: Arena) -> None:
    """Runs in another process."""
    weights = Weights(arena)
    weights.publish(weights.vector + 1)


def test_another_process_reads_the_same_weights(arena: Arena) -> None:
    weights = Weights(arena)
    ctx: Any = multiprocessing.get_context("forkserver")
    process = ctx.Process(target=add_one, args=(arena,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert (weights.version, weights.vector.tolist()) == (1, [1.0] * 10)


def snapshot_arena() -> Arena:
    parts = [Field.of("weights", (4,), np.float32), Field.of("norm/obs", (2, 3), np.float32)]
    return Arena.create([*Weights.fields(4), parts[1], *Snapshots.fields(parts)])


def test_a_copy_has_all_parts_of_one_version() -> None:
    arena = snapshot_arena()
    try:
        snapshots = Snapshots(arena, ["weights", "norm/obs"])
        weights = Weights(arena, snapshots)
        weights.vector.fill_(5.0)
        weights.renew()
        private, parts = snapshots.private()
        assert snapshots.copy(private) == 0
        assert parts["weights"].tolist() == [5.0] * 4
        arena["norm/obs"][...] = 7.0
        weights.publish(torch.full((4,), 6.0))
        weights.vector.fill_(99.0)  # the learner goes on
        assert snapshots.copy(private) == 1
        assert parts["weights"].tolist() == [6.0] * 4
        assert parts["norm/obs"].tolist() == [[7.0] * 3] * 2
    finally:
        arena.close()


def test_a_snapshot_copy_is_repeated_if_it_was_overwritten() -> None:
    arena = snapshot_arena()
    try:
        snapshots = Snapshots(arena, ["weights", "norm/obs"])
        weights = Weights(arena, snapshots)
        weights.renew()
        reads = 0

        class Overtaken(np.ndarray[Any, Any]):
            def __setitem__(self, key: Any, value: Any) -> None:
                nonlocal reads
                super().__setitem__(key, value)
                reads += 1
                if reads == 1:  # two versions appear while the first copy is being made
                    weights.publish(torch.ones(4))
                    weights.publish(torch.full((4,), 2.0))

        private = snapshots.private()[0].view(Overtaken)
        assert snapshots.copy(private) == 2
        assert reads == 2
        assert private[:4].tolist() == [2.0] * 4
    finally:
        arena.close()


def _publish_for_ever(arena: Arena, stop: Any) -> None:
    weights = Weights(arena, Snapshots(arena, ["weights", "norm/obs"]))
    while not stop.is_set():
        value = float(weights.version + 1)
        arena["norm/obs"][...] = value
        weights.publish(torch.full((4,), value))


def test_no_copy_is_ever_torn() -> None:
    arena = snapshot_arena()
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    writer = context.Process(target=_publish_for_ever, args=(arena, stop))
    writer.start()
    try:
        snapshots = Snapshots(arena, ["weights", "norm/obs"])
        private, _ = snapshots.private()
        for _ in range(2000):
            version = snapshots.copy(private)
            assert (private == version).all()
    finally:
        stop.set()
        writer.join(5.0)
        arena.close()
