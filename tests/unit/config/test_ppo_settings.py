from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from paceline.config.ppo_settings import PPOConfig
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0),
        ("n_steps", -1),
        ("batch_size", 0),
        ("n_epochs", 0),
        ("learning_rate", 0.0),
        ("learning_rate", -3e-4),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("gamma", 1.01),
        ("gamma", -0.1),
        ("gae_lambda", 2.0),
        ("clip_range", 0.0),
        ("clip_range_vf", 0.0),
        ("ent_coef", -0.01),
        ("vf_coef", -1.0),
        ("max_grad_norm", 0.0),
        ("target_kl", 0.0),
        ("learner_threads", 0),
        ("n_steps", "128"),
        ("n_steps", True),
    ],
)
def test_a_value_out_of_range_is_named_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        PPOConfig(**{name: value})
    assert str(raised.value).startswith(f"{name}={value!r}: must be ")


def test_the_bounds_of_the_ranges_are_legal() -> None:
    config = PPOConfig(n_steps=1, gamma=1.0, gae_lambda=0.0, ent_coef=0.0, vf_coef=0.0, clip_range_vf=None)
    assert config.gamma == 1.0


def test_one_advantage_cannot_be_normalised() -> None:
    with pytest.raises(ConfigError, match="batch_size=1"):
        PPOConfig(batch_size=1)
    assert PPOConfig(batch_size=1, normalize_advantage=False).batch_size == 1


def test_the_defaults_are_the_documented_ones() -> None:
    shown = {item.name: getattr(PPOConfig(), item.name) for item in fields(PPOConfig)}
    expected = {"n_steps": 64, "batch_size": None, "n_epochs": 10, "learning_rate": 1e-3, "gamma": 0.99, "vf_coef": 0.5}
    assert {name: shown[name] for name in expected} == expected
