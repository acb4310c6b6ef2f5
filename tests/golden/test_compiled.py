"""`--compile`: the same weights for any number of workers, or the weights of a run without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError
from paceline.measure.record import Summary
from paceline.train.run import Run, train

# Loading the compiler stack takes seconds, and warns of deprecations inside torch.
compiles = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Plain(nn.Module):
    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete, param_size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation_space.shape[0], 32), nn.LayerNorm(32), nn.SiLU())
        self.policy, self.value = nn.Linear(32, param_size), nn.Linear(32, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


class Peeking(Plain):
    """Looks at numbers while it runs, so it is not one graph."""

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(obs if float(obs.sum()) < torch.inf else -obs)


COMMON: dict[str, Any] = {
    "n_envs": 6,
    "group_size": 2,
    "n_steps": 16,
    "batch_size": 48,
    "grad_shards": 5,
    "n_epochs": 2,
    "total_timesteps": 6 * 16 * 3,
    "n_eval_episodes": 0,
    "quiet": True,
    "seed": 7,
}
IMAGES = {"env": "tests.games:Dots", "policy": "nature_cnn"}
# The rows of its resets do not count, so its minibatches have many sizes.
NATIVE = {"env": "CartPole-v1", "native_vector": "always", "policy": Plain, "normalize_obs": True}


def trained(workers: int, *, compiled: bool, **settings: Any) -> Summary:
    with Run(TrainConfig.from_flat(**{**COMMON, **settings, "num_workers": workers, "compile": compiled})) as run:
        return run.go()


@pytest.mark.parametrize("settings", [pytest.param(IMAGES, marks=compiles), pytest.param(NATIVE, marks=compiles)])
def test_any_number_of_workers_trains_the_same_weights(settings: dict[str, Any]) -> None:
    expected = trained(0, compiled=True, **settings)
    assert expected.compiled
    for workers in (1, 3):
        found = trained(workers, compiled=True, **settings)
        assert found.compiled
        assert found.weights_sha256 == expected.weights_sha256, f"{workers} workers"
    assert trained(0, compiled=False, **settings).weights_sha256 != expected.weights_sha256


@pytest.mark.parametrize(
    ("settings", "cxx", "why"),
    [
        ({"env": "CartPole-v1"}, None, "MLPPolicy has a hand-written gradient"),
        ({"env": "CartPole-v1", "policy": Plain}, "no-such-compiler", r"no C\+\+ compiler found .*'no-such-compiler'"),
        pytest.param({"env": "CartPole-v1", "policy": Peeking}, None, "data-dependent", marks=compiles),
    ],
)
def test_what_cannot_be_compiled_trains_as_without(
    settings: dict[str, Any], cxx: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cxx is not None:
        monkeypatch.setenv("CXX", cxx)
    with pytest.warns(RuntimeWarning, match=f"compile: .*{why}") as caught:
        found = trained(2, compiled=True, **settings)
    assert len([one for one in caught if "compile:" in str(one.message)]) == 1
    assert not found.compiled
    assert found.weights_sha256 == trained(0, compiled=False, **settings).weights_sha256


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_does_not_change_to_compiled_on_the_way(tmp_path: Path) -> None:
    settings = {**COMMON, "env": "CartPole-v1", "policy": Plain, "num_workers": 0, "output_dir": tmp_path / "run"}
    train(TrainConfig.from_flat(**settings))
    with pytest.raises(CheckpointError, match="compiled is False there and True here"):
        train(TrainConfig.from_flat(**settings, compile=True, resume=True))
