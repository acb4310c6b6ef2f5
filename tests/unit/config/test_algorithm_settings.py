"""What the rest of the program reads from the settings of any algorithm."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from paceline.config.algorithm_settings import checked_schedule
from paceline.config.algorithms import ALGORITHMS
from paceline.config.dqn_settings import DQNConfig
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError

POLICY = {"network_outputs": "policy"}
FACTS: dict[str, dict[str, Any]] = {
    "ppo": {"asynchronous": False, "workers_learn": False, "splits_batches": True, **POLICY},
    "impala": {"asynchronous": True, "workers_learn": False, "splits_batches": True, **POLICY},
    "appo": {"asynchronous": True, "workers_learn": False, "splits_batches": True, **POLICY},
    "a3c": {"asynchronous": True, "workers_learn": True, "splits_batches": False, **POLICY},
    "dqn": {
        "asynchronous": False,
        "workers_learn": False,
        "splits_batches": False,
        "network_outputs": "dueling values",
    },
}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_settings_say_of_their_algorithm(algo: str) -> None:
    settings = ALGORITHMS[algo].settings()
    assert {name: getattr(settings, name) for name in FACTS[algo]} == FACTS[algo]


def test_the_settings_of_dqn_decide_its_schedule_batches_and_outputs() -> None:
    assert DQNConfig(schedule="async").asynchronous
    assert DQNConfig(episodes_per_batch=4).plays_episodes
    assert not DQNConfig().plays_episodes
    assert DQNConfig(n_steps=8).rollout_steps == 8
    assert DQNConfig(dueling=False).network_outputs == "values"


def falling(left: float) -> float:
    return left


def checked(value: Any, schedule: Any = "constant") -> Any:
    return checked_schedule("learning_rate", value, schedule, "Try 3e-4.")


def test_a_function_with_an_import_path_becomes_its_path() -> None:
    assert checked(falling) == f"{__name__}:falling"
    assert checked(0.1) == 0.1
    assert checked("module.name:function") == "module.name:function"

    def inner(left: float) -> float:
        return left

    for function in (inner, lambda left: left, partial(falling)):
        assert checked(function) is function


@pytest.mark.parametrize(
    ("value", "schedule", "said"),
    [
        (0.0, "constant", "learning_rate=0.0: must be above 0. Try 3e-4."),
        (
            "fast",
            "linear",
            "learning_rate='fast': must be a number or an import path. Try 3e-4. Or write module:function.",
        ),
        (falling, "linear", "learning_rate is a function, .* cannot be combined with a linear schedule"),
        ("module:function", "cosine", "cannot be combined with a cosine schedule"),
    ],
)
def test_invalid_schedules_raise(value: Any, schedule: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(value, schedule)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_flags_and_files_name_a_function_by_its_import_path(algo: str) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", algo=algo, learning_rate=[f"{__name__}:falling"], n_envs=4)
    assert config.training.learning_rate == f"{__name__}:falling"
    assert TrainConfig.from_flat(env="CartPole-v1", algo=algo, learning_rate=["1e-4"]).training.learning_rate == 1e-4
    with pytest.raises(ConfigError, match="learning_rate='fast': must be a number or an import path"):
        TrainConfig.from_flat(env="CartPole-v1", algo=algo, learning_rate=["fast"])
