"""Ranges and facts of the settings of IMPALA and APPO."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.config.impala_settings import APPOConfig, ImpalaConfig
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


@pytest.mark.parametrize("cls", [ImpalaConfig, APPOConfig])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0),
        ("batch_slots", 0),
        ("grad_shards", 0),
        ("vtrace_lambda", 1.1),
        ("rho_clip", 0.0),
        ("c_clip", math.nan),
        ("max_lag", 0),
        ("sync_every", 0),
        ("slots_per_worker", 0),
    ],
)
def test_a_value_out_of_range_is_named_with_its_value(cls: type[ImpalaConfig], name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        cls(**{name: value})
    assert str(raised.value).startswith(f"{name}={value!r}: must be ")


def test_only_appo_clips_the_probability_ratio() -> None:
    assert ImpalaConfig().clip_range == math.inf
    assert APPOConfig(clip_range=0.1).clip_range == 0.1
    assert (ImpalaConfig().proximal, APPOConfig().proximal) == (False, True)
    with pytest.raises(ConfigError, match="clip_range=0"):
        APPOConfig(clip_range=0.0)


def test_weights_must_not_become_older_than_the_largest_lag_by_design() -> None:
    with pytest.raises(ConfigError, match="sync_every=9: must not be above max_lag=8"):
        ImpalaConfig(max_lag=8, sync_every=9)


@pytest.mark.parametrize(("name", "hint"), [("trust_env_state", "never pause"), ("normalize_reward", "in order")])
def test_what_needs_all_envs_to_pause_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: .*{hint}"):
        TrainConfig.from_flat(env="CartPole-v1", algo="impala", **{name: True})
