"""A features extractor of the user's in front of the MLP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline import DQN, PPO
from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.nets.extracted_mlp import ExtractedMLP
from paceline.nets.policy import build_policy
from paceline.spec import EnvSpec
from paceline.train.agent import Agent

SMALL: dict[str, Any] = {"n_envs": 4, "group_size": 2, "n_eval_episodes": 0, "seed": 3, "hidden_sizes": (16,)}


class Scaled(nn.Module):
    """As users of stable-baselines3 write an extractor, with a default for the number of features."""

    def __init__(self, observation_space: gym.Space[Any], features_dim: int = 12) -> None:
        super().__init__()
        assert observation_space.shape is not None
        self.net = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        found: Tensor = self.net(obs)
        return found


class ByKey(nn.Module):
    """Features of a Dict observation: a small image and a vector."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(6 * 6, 4))

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return torch.cat((self.image(obs["image"].float() / 255.0), obs["place"]), 1)


class NotFlat(Scaled):
    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs)[:, None]


class Fails(Scaled):
    def forward(self, obs: Tensor) -> Tensor:
        raise RuntimeError("no such layer")


class Number:
    def __init__(self, observation_space: Any) -> None:
        pass


class Picky(nn.Module):
    pass


VECTOR = EnvSpec.of(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2))


def test_the_towers_read_the_features() -> None:
    policy = build_policy("auto", VECTOR, hidden_sizes=(8,), value_hidden_sizes=(), features_extractor=Scaled)
    assert isinstance(policy, ExtractedMLP)
    rows = torch.randn(5, 4)
    params, values = policy(rows)
    features = policy.features_extractor(rows)
    torch.testing.assert_close(params, policy.policy_tower(features))
    torch.testing.assert_close(values, policy.value_tower(features)[:, 0])
    sizes = [layer.in_features for layer in policy.modules() if isinstance(layer, nn.Linear)]
    assert sizes == [4, 12, 8, 12]


@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
def test_dict_observations_arrive_by_key_and_images_as_they_are(actions: Any) -> None:
    space = spaces.Dict({"image": spaces.Box(0, 255, (6, 6, 1), np.uint8), "place": spaces.Box(-1, 1, (2,))})
    spec = EnvSpec.of(space, actions)
    policy = build_policy("mlp", spec, hidden_sizes=(8,), features_extractor=ByKey)
    obs = {"image": torch.zeros(7, 6, 6, 1, dtype=torch.uint8), "place": torch.zeros(7, 2)}
    params, values = policy(obs)
    assert (params.shape, values.shape) == ((7, spec.action.param_size), (7,))


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_training_has_the_same_bits_for_any_number_of_workers(cls: type[Agent]) -> None:
    found = []
    for workers in (0, 2):
        extra: dict[str, Any] = (
            {"n_steps": 32, "batch_size": 64, "grad_shards": 2} if cls is PPO else {"learning_starts": 64}
        )
        with cls("CartPole-v1", **SMALL, **extra, num_workers=workers, features_extractor=Scaled) as agent:
            before = agent.get_weights()
            agent.learn(384)
            found.append(agent.get_weights())
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(before, found[0])


def test_a_saved_agent_needs_the_class_or_its_import_path(tmp_path: Path) -> None:
    path = f"{__name__}:Scaled"
    for extractor, name in ((Scaled, "by_class"), (path, "by_path")):
        PPO("CartPole-v1", **SMALL, num_workers=0, features_extractor=extractor).save(tmp_path / name)
    loaded = PPO.load(tmp_path / "by_path")
    assert (
        PPO.load(tmp_path / "by_class", features_extractor=Scaled).get_weights().tobytes()
        == loaded.get_weights().tobytes()
    )
    with pytest.raises(
        ConfigError, match=r"features_extractor was a Python object.*load\(path, features_extractor=...\)"
    ):
        PPO.load(tmp_path / "by_class")
    with pytest.raises(CheckpointError, match=f"features_extractor is '{path}' there and None here"):
        PPO.load(tmp_path / "by_path", features_extractor=None)


@pytest.mark.parametrize(
    ("extractor", "said"),
    [
        (NotFlat, r"must return features of shape \[N, F\] for N observations \(got \(3, 1, 12\) for 3\)"),
        (Fails, r"forward raised RuntimeError on \{'obs': \(3, 4\)\}: no such layer"),
        (Number, r"must construct a torch.nn.Module \(got a Number\)"),
        (Picky, r"Picky\(observation_space\) raised TypeError"),
        ("tests.nowhere:Scaled", "features_extractor='tests.nowhere:Scaled': no module"),
        (f"{__name__}:Scale", "has no 'Scale'. Did you mean 'Scaled'"),
    ],
)
def test_an_extractor_that_does_not_fit_raises(extractor: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_policy("auto", VECTOR, features_extractor=extractor)


def test_settings_that_do_not_fit_raise() -> None:
    with pytest.raises(ConfigError, match=r"features_extractor: is for policy='mlp' \(got 'nature_cnn'\)"):
        build_policy("nature_cnn", VECTOR, features_extractor=Scaled)
    with pytest.raises(ConfigError, match="features_extractor='cnn': must be an import path"):
        TrainConfig.from_flat(env="x", features_extractor="cnn")
