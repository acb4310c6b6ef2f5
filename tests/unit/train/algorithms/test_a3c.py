"""A3C: its memory, its settings per worker, and its optimisers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from tests.inside import inside
from tests.unit.train.async_runs import config

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.train.build import build
from paceline.train.run import Run, train


def test_the_arena_of_a3c_has_no_fields_for_a_learning_driver() -> None:
    with closing(build(config("a3c", num_workers=0))) as training:
        held = {field.name for field in training.arena.fields}
    assert {"live", "0/reward", "learning/reward"} <= held
    assert held.isdisjoint({"samples", "order", "grads", "terms", "snapshots"})


def test_each_worker_has_its_own_learning_rate_and_entropy_coefficient() -> None:
    settings = config("a3c", learning_rate=1e-3, ent_coef=0.01, lr_spread=4, ent_spread=2).training
    found = [settings.of_worker(worker, 3) for worker in range(3)]  # type: ignore[attr-defined]
    assert [one.learning_rate for one in found] == pytest.approx([2.5e-4, 1e-3, 4e-3])
    assert [one.ent_coef for one in found] == pytest.approx([0.005, 0.01, 0.02])
    assert settings.of_worker(0, 1).learning_rate == 1e-3  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_both_optimisers_of_a3c_change_the_weights(optimizer: str, workers: int) -> None:
    with Run(config("a3c", num_workers=workers, optimizer=optimizer, n_eval_episodes=0)) as run:
        before = run.training.weights.sha256()
        summary = run.go()
    assert summary.iterations > 0
    assert summary.weights_sha256 != before


def test_the_progress_of_schedules_is_restored() -> None:
    settings = TrainConfig.from_flat(
        algo="a3c", env="CartPole-v1", n_envs=8, num_workers=0, quiet=True, n_eval_episodes=0
    )
    with Run(settings) as run, Run(settings) as other:
        inside(run).learner._progress[:] = 0.9
        inside(other).learner.load(inside(run).learner.state())
        assert np.all(inside(other).learner._progress == 0.9)


@pytest.mark.parametrize(
    ("algo", "settings", "text"),
    [
        ("a3c", {"batch_size": 32}, "It is a setting of ppo, impala, appo and dqn, not of a3c"),
        ("a3c", {"device": "cuda"}, "device='cuda': in a3c the workers learn"),
        ("a3c", {"lr_spread": 0.5}, "lr_spread=0.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(algo: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(config(algo, **settings))
    assert text in str(caught.value)
