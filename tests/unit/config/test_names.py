"""Other names of settings."""

from __future__ import annotations

import pytest

from paceline.config.names import ALIASES, FAMILIAR, REMOVED, canonical, removed
from paceline.config.train_config import TrainConfig, section_of
from paceline.errors import ConfigError

KNOWN = {name for algo in ("ppo", "dqn", "impala") for name in section_of(algo)}


def test_aliases_and_suggestions_name_settings_that_exist() -> None:
    assert set(ALIASES.values()) | set(FAMILIAR.values()) <= KNOWN
    assert not (set(ALIASES) | set(FAMILIAR) | set(REMOVED)) & KNOWN


def test_a_name_may_have_hyphens_or_be_an_alias() -> None:
    assert canonical("num-envs") == "n_envs"
    assert canonical("learning-rate") == "learning_rate"


@pytest.mark.parametrize("value", [True, "true"])
def test_a_removed_setting_is_refused_with_the_reason(value: object) -> None:
    with pytest.raises(ConfigError, match=r"compile: removed, compiled gradients ran at 0\.83 to 1\.03"):
        TrainConfig.from_flat(env="CartPole-v1", compile=value)
    assert removed("--compile").startswith("--compile: removed, ")


def test_a_removed_setting_that_is_off_is_ignored_as_old_configs_have_it() -> None:
    assert TrainConfig.from_flat(env="CartPole-v1", compile=False) == TrainConfig.from_flat(env="CartPole-v1")
