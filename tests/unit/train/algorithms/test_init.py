"""Finding an algorithm by its name in the table."""

from __future__ import annotations

import pytest

from paceline.config.algorithms import ALGORITHMS, Entry
from paceline.config.ppo_settings import PPOConfig
from paceline.errors import ConfigError
from paceline.train.algorithms import algorithm, dqn, impala


def test_an_algorithm_is_what_its_entry_names() -> None:
    assert algorithm("dqn") is dqn.DQN
    assert algorithm("appo") is impala.APPO


@pytest.mark.parametrize("attribute", ["PPOPlan", "Missing"])
def test_an_entry_that_names_no_algorithm_is_refused_with_advice(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"paceline.train.algorithms.ppo:{attribute}"
    monkeypatch.setitem(ALGORITHMS, "mine", Entry(PPOConfig, path))
    with pytest.raises(ConfigError, match=rf"algo='mine': {path} is not an Algorithm.*{attribute} = Algorithm\(") as it:
        algorithm("mine")
    assert "Assign one there" in str(it.value)
