"""The driver's side of A3C: it publishes the weights that workers update, and sums up their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algos.learners import SPEC, batch

from paceline.algos.a3c import SKIPPED, A3CLearner
from paceline.measure.clock import Clock
from paceline.memory.shared import Arena
from paceline.memory.weights import LiveWeights, Weights
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.adam import FlatAdam
from paceline.spec import PLAIN

SIZE = 5


class Rig:
    """A learner, with the memory that its two workers would update."""

    def __init__(self, *, obs_norm: bool = False) -> None:
        self.arena = Arena.create([*LiveWeights.fields(SIZE, 2), *Weights.fields(SIZE)])
        self.live, self.weights = LiveWeights(self.arena), Weights(self.arena)
        self.weights.vector.copy_(torch.arange(SIZE, dtype=torch.float32))
        self.optimiser, self.progress = FlatAdam(torch.zeros(SIZE)), np.zeros(1)
        self.stats: list[dict[str, float]] = [{"loss": 1.0, SKIPPED: 0.0}]
        self.obs_norm = ObsNormaliser(SPEC) if obs_norm else None
        self.learner = A3CLearner(
            self.live,
            self.weights,
            self.optimiser,
            lambda: [dict(one) for one in self.stats],
            self.progress,
            Clock(),
            self.obs_norm,
        )

    def work(self, worker: int) -> None:
        """An update by a worker."""
        live = LiveWeights(self.arena, worker)
        live.vector.add_(1.0)
        live.publish(live.vector)


@pytest.fixture
def rigs() -> Iterator[Any]:
    made: list[Rig] = []

    def make(**settings: Any) -> Rig:
        made.append(Rig(**settings))
        return made[-1]

    yield make
    for one in made:
        one.arena.close()


def test_workers_start_from_the_initial_weights(rigs: Any) -> None:
    assert rigs().live.vector.tolist() == [0, 1, 2, 3, 4]


def test_an_update_publishes_a_copy_of_the_weights_and_counts_the_workers_updates(rigs: Any) -> None:
    rig = rigs()
    rig.work(0)
    rig.work(1)
    rig.work(1)
    assert rig.weights.vector.tolist() == [0, 1, 2, 3, 4]
    stats = rig.learner.update(batch(), 0.25)
    assert rig.weights.vector.tolist() == [3, 4, 5, 6, 7]
    assert stats["n_updates"] == rig.learner.version == 3
    assert rig.weights.version == 1
    assert rig.progress[0] == 0.25, "workers read it for their schedules"
    rig.work(0)
    assert rig.weights.vector.tolist() == [3, 4, 5, 6, 7], "a copy: workers continue meanwhile"


def test_statistics_are_means_over_slots_and_skipped_updates_are_summed(rigs: Any) -> None:
    rig = rigs()
    rig.stats = [{"loss": 1.0, "approx_kl": 0.1, SKIPPED: 2.0}, {"loss": 4.0, "approx_kl": 0.3, SKIPPED: 1.0}]
    stats = rig.learner.update(batch(), 0.0)
    assert stats == {"loss": 2.5, "approx_kl": pytest.approx(0.2), "n_updates": 0.0}
    assert rig.learner.bad.count == 3
    rig.learner.update(batch(), 0.0)
    assert rig.learner.bad.count == 6
    assert "skipped updates so far: 6" in rig.learner.bad.notes()[0]


def test_observation_statistics_are_updated_with_the_valid_rows_of_the_batch(rigs: Any) -> None:
    rig, data = rigs(obs_norm=True), batch()
    data.valid[2] = False
    data.obs[PLAIN][2] = 1e6
    rig.learner.update(data, 0.0)
    seen = data.obs[PLAIN][:-1].numpy()[data.valid.numpy()]
    np.testing.assert_allclose(rig.obs_norm.arrays[PLAIN][0], seen.mean(0), atol=1e-5)


def test_a_checkpoint_restores_weights_version_progress_and_optimiser(rigs: Any) -> None:
    rig, resumed = rigs(), rigs()
    rig.work(0)
    rig.work(1)
    rig.optimiser.step(torch.ones(SIZE), 0.1)
    rig.learner.update(batch(), 0.6)
    state = {key: np.array(value) for key, value in rig.learner.state().items()}
    rig.work(0)
    resumed.learner.load(state)
    assert resumed.live.vector.tolist() == resumed.weights.vector.tolist() == [2, 3, 4, 5, 6]
    assert resumed.learner.version == 2
    assert resumed.progress[0] == 0.6
    for key, value in resumed.optimiser.state().items():
        np.testing.assert_array_equal(value, state[f"optimiser/{key}"])
    assert any(value.any() for value in resumed.optimiser.state().values())


def test_checkpoints_of_versions_that_stored_no_progress_load(rigs: Any) -> None:
    rig, resumed = rigs(), rigs()
    state = rig.learner.state()
    del state["progress"]
    resumed.progress[0] = 0.5
    resumed.learner.load(state)
    assert resumed.progress[0] == 0.0


def test_a_warm_start_replaces_the_shared_and_the_published_weights_only(rigs: Any) -> None:
    rig = rigs()
    rig.work(0)
    rig.learner.load_weights(np.full(SIZE, 9.0, np.float32))
    assert rig.live.vector.tolist() == rig.weights.vector.tolist() == [9.0] * SIZE
    assert rig.learner.version == 1
