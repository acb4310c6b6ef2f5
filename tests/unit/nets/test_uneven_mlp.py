"""The MLP whose value tower has other layers than the policy tower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import nn

from paceline import DQN, IMPALA, PPO
from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.nets.flat import move_parameters, size_of
from paceline.nets.mlp import MLPPolicy
from paceline.nets.policy import build_policy
from paceline.nets.uneven_mlp import UnevenMLP
from paceline.spec import EnvSpec
from paceline.train.agent import Agent

BOX = spaces.Box(-1, 1, (3,), np.float32)
SMALL: dict[str, Any] = {"n_envs": 4, "group_size": 2, "n_eval_episodes": 0, "seed": 3, "hidden_sizes": (16,)}


def moved(spec: EnvSpec, hidden: tuple[int, ...], value: tuple[int, ...], activation: Any = "tanh") -> nn.Module:
    policy = build_policy("mlp", spec, hidden_sizes=hidden, value_hidden_sizes=value, activation=activation, seed=1)
    move_parameters(policy, torch.empty(size_of(policy)))
    return policy


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("actions", [spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)])
@pytest.mark.parametrize(("hidden", "value"), [((8,), (16, 4)), ((8, 8), ()), ((), (5,))])
def test_collecting_in_numpy_computes_what_the_module_computes(
    activation: Any, actions: Any, hidden: tuple[int, ...], value: tuple[int, ...]
) -> None:
    policy = moved(EnvSpec.of(BOX, actions), hidden, value, activation)
    assert isinstance(policy, UnevenMLP)
    actor = policy.numpy_actor(2, 3)
    rows: NDArray[np.float32] = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for _ in range(2):
        params, values = (torch.from_numpy(found.copy()) for found in actor({"obs": rows}))
        expected = policy(torch.from_numpy(rows))
        torch.testing.assert_close((params, values), (expected[0].detach(), expected[1].detach()), atol=1e-5, rtol=1e-5)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.05)  # the actor follows


def test_each_tower_has_its_layers_initialised_as_in_the_even_mlp() -> None:
    policy = moved(EnvSpec.of(BOX, spaces.Discrete(4)), (8,), (16, 4))
    shapes = [tuple(parameter.shape) for parameter in policy.parameters()]
    assert shapes == [(8, 3), (8,), (4, 8), (4,), (16, 3), (16,), (4, 16), (4,), (1, 4), (1,)]
    logits, values = policy(torch.randn(64, 3))
    assert logits.abs().max() < 0.1 < values.abs().max()


def test_equal_sizes_build_the_mlp_that_learns_in_numpy() -> None:
    spec = EnvSpec.of(BOX, spaces.Discrete(4))
    assert type(moved(spec, (8,), (8,))) is MLPPolicy
    assert type(build_policy("auto", spec, hidden_sizes=(8,))) is MLPPolicy


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_training_has_the_same_bits_for_any_number_of_workers(env: str) -> None:
    found = []
    for workers in (0, 2):
        settings = {**SMALL, "num_workers": workers, "n_steps": 32, "batch_size": 64, "grad_shards": 2}
        with PPO(env, **settings, value_hidden_sizes=(32, 8)) as agent:
            before = agent.get_weights()
            agent.learn(384)
            found.append(agent.get_weights())
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(before, found[0])
    policy = agent.policy
    assert isinstance(policy, UnevenMLP)
    assert [layer.out_features for layer in policy.value_tower if isinstance(layer, nn.Linear)] == [32, 8, 1]


@pytest.mark.parametrize("cls", [IMPALA, DQN])
def test_other_algorithms_train_it_too(cls: type[Agent]) -> None:
    with cls("CartPole-v1", **SMALL, num_workers=2, value_hidden_sizes=(32,)) as agent:
        before = agent.get_weights()
        agent.learn(2000)
        assert not np.array_equal(before, agent.get_weights())


def test_a_saved_agent_loads_with_its_layers_and_not_with_others(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", **SMALL, num_workers=0, value_hidden_sizes=(32,))
    agent.save(tmp_path / "m")
    assert PPO.load(tmp_path / "m").get_weights().tobytes() == agent.get_weights().tobytes()
    with pytest.raises(CheckpointError, match=r"value_hidden_sizes is \[32\] there and None here"):
        PPO.load(tmp_path / "m", value_hidden_sizes=None)


def test_settings_that_do_not_fit_raise() -> None:
    spec = EnvSpec.of(spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"value_hidden_sizes=\(8,\): is for policy='mlp' \(got 'nature_cnn'\)"):
        build_policy("auto", spec, value_hidden_sizes=(8,))
    with pytest.raises(ConfigError, match="value_hidden_sizes=0: must be at least 1"):
        PPO("CartPole-v1", value_hidden_sizes=(8, 0))
    assert TrainConfig.from_flat(env="x", value_hidden_sizes="32,8").policy.value_hidden_sizes == (32, 8)
    wide = TrainConfig.from_flat(env="x", n_envs=8, n_steps=16, value_hidden_sizes=(256,))
    assert wide.grad_shards(image=False) == 2
    assert wide.merge(value_hidden_sizes=(64,)).grad_shards(image=False) == 1
