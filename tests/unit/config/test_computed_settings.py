"""Values that a config computes: the minibatch size, gradient shards and their rows, normalised rewards."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config.train_config import TrainConfig


@pytest.mark.parametrize(
    ("algo", "n_envs", "n_steps", "batch_size"),
    [
        ("ppo", 32, 64, 256),
        ("ppo", 6, 128, 256),
        ("ppo", 9, 128, 192),
        ("ppo", 1, 7, 7),
        ("impala", 32, 128, 1024),
        ("appo", 12, 128, 768),
    ],
)
def test_a_batch_size_that_is_not_given_always_divides_the_batch(
    algo: str, n_envs: int, n_steps: int, batch_size: int
) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", algo=algo, n_envs=n_envs, n_steps=n_steps)
    assert config.training.batch_size == batch_size


@pytest.mark.parametrize("algo", ["ppo", "impala", "appo", "a3c", "dqn"])
def test_ppo_alone_normalises_rewards_by_default_and_the_config_says_so(algo: str) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", algo=algo)
    assert config.env.normalize_reward is (algo == "ppo")
    assert f"normalize_reward: {str(algo == 'ppo').lower()}" in config.to_yaml()
    assert config.merge(normalize_reward=False).env.normalize_reward is False


@pytest.mark.parametrize(
    ("settings", "image", "shards"),
    [
        ({"batch_size": 4096}, False, 2),
        ({"batch_size": 256}, False, 2),
        ({"batch_size": 128}, False, 1),
        ({"batch_size": 128, "hidden_sizes": (64, 128)}, False, 2),
        ({"batch_size": 64, "hidden_sizes": (512, 512)}, False, 1),
        ({"batch_size": 128, "hidden_sizes": ()}, False, 1),
        ({"batch_size": 128}, True, 2),
        ({"batch_size": 1024}, True, 8),
        ({"batch_size": 64, "grad_shards": 3}, False, 3),
    ],
)
def test_shards_by_network_and_minibatch(settings: dict[str, Any], image: bool, shards: int) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=32, n_steps=128, **{"n_epochs": 1, **settings})
    assert config.grad_shards(image=image) == shards


@pytest.mark.parametrize(("batch_size", "shards", "rows"), [(64, 2, 32), (64, 5, 13), (1000, 2, 64), (4, 8, 1)])
def test_rows_of_the_largest_shard(batch_size: int, shards: int, rows: int) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=16, batch_size=batch_size)
    assert config.shard_rows(shards) == rows
