"""What the rest of the program reads from the settings of any algorithm."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config.algorithms import ALGORITHMS
from paceline.config.dqn_settings import DQNConfig

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
    assert DQNConfig().plays_episodes
    assert not DQNConfig(n_steps=4).plays_episodes
    assert DQNConfig(n_steps=4).rollout_steps == 4
    assert DQNConfig(dueling=False).network_outputs == "values"
