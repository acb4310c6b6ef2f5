"""Settings of DQN: ranges, contradictions, the replay capacity and derived values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.config.dqn_settings import DQNConfig, buffer_room
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("episodes_per_batch", 0),
        ("n_steps", 0),
        ("learning_steps_per_batch", 0),
        ("samples_per_insert", 0.0),
        ("spi_tolerance", 0.0),
        ("learning_starts", 0),
        ("buffer_size", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("gamma", 1.1),
        ("multi_step", 0),
        ("target_update", 0),
        ("tau", 0.0),
        ("tau", 1.5),
        ("priority_alpha", -0.1),
        ("priority_beta", 1.1),
        ("epsilon_start", 1.1),
        ("epsilon_end", -0.1),
        ("exploration_fraction", 2.0),
        ("epsilon_decay", 0.0),
        ("epsilon_ladder", -1.0),
        ("max_grad_norm", 0.0),
        ("learner_threads", 0),
    ],
)
def test_a_value_out_of_range_is_named_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        DQNConfig(**{name: value})
    assert str(raised.value).startswith(f"{name}={value!r}: must be ")


SPI = 32.0
"""The default replay ratio."""


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"learning_steps_per_batch": 8, "samples_per_insert": 4.0}, "both set the number of updates"),
        ({"learning_steps_per_batch": 8, "schedule": "async"}, "there are no batches in async mode"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        DQNConfig(**settings)


@pytest.mark.parametrize(
    ("size", "capacity", "in_bytes"),
    [
        (5000, 5000, False),
        ("5000", 5000, False),
        ("1e6", 1_000_000, False),
        ("500MB", 500_000_000, True),
        ("1.5 gb", 1_500_000_000, True),
        ("2kB", 2000, True),
        ("1TB", 10**12, True),
    ],
)
def test_a_capacity_is_in_transitions_or_bytes(size: int | str, capacity: int, in_bytes: bool) -> None:
    assert buffer_room(size) == (capacity, in_bytes)


@pytest.mark.parametrize("size", ["", "MB", "many", "-5", "0", "0.1", "5 apples", "1.2.3", "0.0001kB", "1e999"])
def test_a_capacity_that_is_no_number_is_refused(size: str) -> None:
    with pytest.raises(ConfigError, match=r"buffer_size=.*must be a number of transitions, or bytes as 500MB"):
        buffer_room(size)


@pytest.mark.parametrize(
    ("settings", "in_episodes", "steps", "spi"),
    [
        ({}, False, 4, SPI),
        ({"n_steps": 8}, False, 8, SPI),
        ({"schedule": "async"}, False, 16, SPI),
        ({"schedule": "async", "n_steps": 5, "samples_per_insert": 2.0}, False, 5, 2.0),
        ({"episodes_per_batch": 2}, True, 4, None),
        ({"episodes_per_batch": 2, "n_steps": 4}, False, 4, SPI),
        ({"episodes_per_batch": 2, "samples_per_insert": 3.0}, True, 4, 3.0),
        ({"n_steps": 4, "learning_steps_per_batch": 10}, False, 4, None),
    ],
)
def test_batches_in_episodes_or_steps_and_the_replay_ratio(
    settings: dict[str, Any], in_episodes: bool, steps: int, spi: float | None
) -> None:
    config = DQNConfig(**settings)
    assert (config.plays_episodes, config.rollout_steps, config.spi) == (in_episodes, steps, spi)


def test_a_resumed_run_must_share_what_defines_the_replay() -> None:
    one = DQNConfig()
    assert one.identity() == DQNConfig(learning_rate=0.5, batch_size=7).identity()
    for change in ({"multi_step": 2}, {"buffer_size": 7}, {"prioritized": True}, {"save_replay": False}):
        assert one.identity() != DQNConfig(**change).identity()


def test_a_function_as_learning_rate_replaces_the_default_schedule() -> None:
    assert DQNConfig().lr_schedule == "linear"
    config = DQNConfig(learning_rate="math:sqrt")
    assert config.lr_schedule == "constant"
    with pytest.raises(ConfigError, match="cosine schedule"):
        DQNConfig(learning_rate="math:sqrt", lr_schedule="cosine")
