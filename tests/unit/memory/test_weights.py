"""Published weights: one vector, no copy on the CPU, and a version that says which they are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.memory.shared import Arena
from paceline.memory.weights import Weights


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
