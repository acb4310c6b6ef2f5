"""Building a training: its parts share the right memory, and a failed build leaves nothing behind."""

from __future__ import annotations

import multiprocessing
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from tests.games import Counter

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError, PacelineError
from paceline.memory.shared import Arena
from paceline.nets.flat import bind, size_of
from paceline.train.build import build
from paceline.train.recipes import policy_recipe

SHAPER = "tests.simulator:Travelled"
SMALL: dict[str, Any] = {
    "env": "CartPole-v1", "n_envs": 4, "group_size": 2, "n_steps": 8, "hidden_sizes": (8,), "num_workers": 0,
}  # fmt: skip


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{**SMALL, **settings})


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> list[Arena]:
    """The arenas that are made in a test."""
    made: list[Arena] = []
    create = Arena.create

    def noted(fields: Any) -> Arena:
        made.append(create(fields))
        return made[-1]

    monkeypatch.setattr(Arena, "create", noted)
    return made


def test_the_parts_have_the_sizes_of_the_config() -> None:
    with closing(build(config(normalize_reward=False))) as training:
        assert training.spec.obs[0].shape == (4,)
        assert training.arena["reward"].shape == (8, 4)
        assert (training.layout.groups, training.layout.group_size, training.layout.num_workers) == (2, 2, 0)
        assert len(training.weights.vector) == size_of(policy_recipe(config()).build(training.spec))
        assert (training.obs_norm, training.reward_norm) == (None, None)


def test_normalisers_are_built_if_the_config_asks_for_them() -> None:
    with closing(build(config(normalize_obs=True, normalize_reward=True))) as training:
        assert training.obs_norm is not None
        assert training.reward_norm is not None


def test_the_published_weights_are_those_of_the_network_and_predictions_use_them() -> None:
    with closing(build(config(seed=5))) as training:
        fresh = policy_recipe(config(seed=5)).build(training.spec)
        expected = np.sort(np.concatenate([p.detach().numpy().ravel() for p in fresh.parameters()]))
        published = training.arena["weights"]  # with zeros between the parameters, for alignment
        np.testing.assert_array_equal(np.sort(published[published != 0]), expected[expected != 0])
        # Training changes the published weights; the predictor must act with the new ones.
        rng = np.random.default_rng(0)
        published[:] = rng.normal(scale=2.0, size=published.shape)
        bind(fresh, torch.from_numpy(published.copy()))
        observations = rng.normal(size=(50, 4)).astype(np.float32)
        with torch.no_grad():
            best = fresh(torch.from_numpy(observations))[0].argmax(1).tolist()
        assert set(best) == {0, 1}
        assert [training.predictor(obs) for obs in observations] == best


@pytest.mark.parametrize(("workers", "private"), [(0, False), (2, True)])
def test_the_learner_has_private_weights_where_workers_read_the_published_ones(workers: int, private: bool) -> None:
    with closing(build(config(num_workers=workers))) as training:
        vector: torch.Tensor = training.learner._vector  # type: ignore[union-attr]
        assert (vector.data_ptr() != training.weights.vector.data_ptr()) is private
        assert torch.equal(vector, training.weights.vector)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"device": "mps"}, "torch finds no such device"),
        (
            {"env": "tests.simulator:Simulator", "shaper": SHAPER, "trust_env_state": True},
            "trust_env_state: unsupported",
        ),
        ({"env": "paceline/TicTacToe-v0", "shaper": SHAPER}, "shaper: unsupported"),
        ({"env": "CartPole-v99"}, "not registered"),
    ],
)
def test_settings_that_do_not_fit_are_an_error_and_free_the_memory(
    settings: dict[str, Any], text: str, arenas: list[Arena]
) -> None:
    with pytest.raises(ConfigError, match=text):
        build(config(**settings))
    assert not [arena for arena in arenas if arena._arrays]


class OnlyInTheDriver(Counter):
    """Cannot be made in a worker process."""

    def __init__(self) -> None:
        if multiprocessing.parent_process() is not None:
            raise RuntimeError("no licence for this process")
        super().__init__()


@pytest.mark.parametrize("env", ["tests.unit.train.test_build:OnlyInTheDriver"])
def test_a_worker_that_cannot_build_its_envs_ends_all_workers_and_frees_the_memory(
    env: str, arenas: list[Arena]
) -> None:
    with pytest.raises(PacelineError, match="no licence for this process"):
        build(config(env=env, num_workers=2))
    (arena,) = arenas
    assert not arena._arrays
