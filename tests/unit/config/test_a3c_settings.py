"""Ranges of A3C's settings, the settings of its workers, and what it does not support."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config.a3c_settings import A3CConfig
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


@pytest.mark.parametrize(("name", "value"), [("n_steps", 0), ("gamma", 2.0), ("lr_spread", 0.5), ("ent_spread", 0.0)])
def test_a_value_out_of_range_is_named_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        A3CConfig(**{name: value})
    assert str(raised.value).startswith(f"{name}={value!r}: must be ")


def test_workers_spread_their_learning_rates_around_the_given_one() -> None:
    config = A3CConfig(learning_rate=1e-3, lr_spread=4.0, ent_coef=0.01, ent_spread=2.0)
    first, middle, last = (config.of_worker(worker, 3) for worker in range(3))
    assert first.learning_rate == pytest.approx(2.5e-4)
    assert middle.learning_rate == pytest.approx(1e-3)
    assert last.learning_rate == pytest.approx(4e-3)
    assert last.ent_coef == pytest.approx(0.02)


def test_a_single_worker_has_the_settings_as_given() -> None:
    config = A3CConfig(lr_spread=4.0)
    assert config.of_worker(0, 1).learning_rate == config.learning_rate


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"runtime": "ray"}, "runtime=ray: workers of a3c"),
        ({"inference": "central"}, "inference='central': in a3c each worker"),
        ({"device": "cuda"}, "device='cuda': in a3c the workers learn"),
        ({"normalize_reward": True}, "normalize_reward: "),
    ],
)
def test_what_its_workers_cannot_do_is_refused(settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        TrainConfig.from_flat(env="CartPole-v1", algo="a3c", **settings)
