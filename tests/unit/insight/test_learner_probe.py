"""The learner probe leaves the training unchanged and measures every setting."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.insight import learner_probe
from paceline.insight.learner_probe import LearnerProbe, nothing_to_try
from paceline.insight.windows import iterate
from paceline.train.build import build


def test_the_training_is_not_modified() -> None:
    config = TrainConfig.from_flat(
        env="CartPole-v1", n_envs=8, n_steps=16, n_epochs=1, num_workers=0, normalize_obs=True
    )
    with closing(build(config)) as training:
        training.rollouts.reset()
        iterate(training)
        before = {name: value.tobytes() for name, value in training.state().items()}
        with closing(LearnerProbe(training)) as probe:
            probe.round(0.01)
            assert all(rate > 0 for rates in probe.speeds().updates_per_s.values() for rate in rates)
        assert {name: value.tobytes() for name, value in training.state().items()} == before


def test_a_slow_update_is_timed_on_part_of_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_probe, "turn_size", lambda *_: (1, 3))
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=16, batch_size=32, num_workers=0)
    with closing(build(config)) as training:
        training.rollouts.reset()
        iterate(training)
        with closing(LearnerProbe(training)) as probe:
            assert [probe._update(number) for number in range(len(probe.settings))] == [3] * len(probe.settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"algo": "impala"}, "workers of impala do not compute shards"),
        ({"pipeline": True, "num_workers": 1}, "with pipeline"),
    ],
)
def test_it_says_which_trainings_it_cannot_measure(settings: dict[str, Any], reason: str | None) -> None:
    config = TrainConfig.from_flat(**{"env": "CartPole-v1", "n_envs": 8, "n_steps": 16, "num_workers": 0, **settings})
    with closing(build(config)) as training:
        found = nothing_to_try(training)
        assert (found is None) if reason is None else (reason in (found or ""))


def test_updates_hardly_move_the_weights() -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=16, n_epochs=1, num_workers=0)
    with closing(build(config)) as training:
        training.rollouts.reset()
        iterate(training)
        with closing(LearnerProbe(training)) as probe:
            before = probe._learners[0].state()["weights"].copy()
            probe.round(0.01)
            np.testing.assert_allclose(probe._learners[0].state()["weights"], before, rtol=0, atol=1e-9)
