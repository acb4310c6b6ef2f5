from __future__ import annotations

import pytest

from benchmarks.suites.two_checkouts import WORKLOADS
from paceline.config.train_config import TrainConfig
from paceline.train.recipes import env_recipe


def test_all_workloads_are_covered() -> None:
    assert set(WORKLOADS) == {"cartpole", "busy", "sleep", "atari", "dqn", "cyber"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_a_valid_config_with_an_env_on_two_workers(name: str) -> None:
    config = TrainConfig.from_flat(**WORKLOADS[name])
    spec = env_recipe(config).probe()
    assert config.to_dict()["parallel"]["num_workers"] == 2
    assert spec.action.param_size > 0
