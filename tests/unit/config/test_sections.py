"""Ranges of the settings in the sections env, parallel, policy and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


def flat(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"env": "CartPole-v1", **settings})


def refused(**settings: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        flat(**settings)
    return str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "n_envs",
        "group_size",
        "num_envs_per_worker",
        "frame_stack",
        "total_timesteps",
        "total_episodes",
        "keep_checkpoints",
    ],
)
@pytest.mark.parametrize("value", [0, -4, "0"])
def test_zero_and_negative_sizes_are_refused(name: str, value: Any) -> None:
    assert refused(**{name: value, "num_workers": 2}).startswith(f"{name}={int(value)}: must be at least 1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_workers", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("env_timeout_s", 0.0),
        ("start_timeout_s", -1.0),
        ("eval_freq", -1),
        ("save_freq", -1),
        ("n_eval_episodes", -1),
        ("duration", "0s"),
        ("device", "gpu"),
        ("device", "cuda:x"),
        ("algo", "pppo"),
        ("pin_cores", "x"),
        ("wrappers", "NoModule"),
    ],
)
def test_other_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    assert refused(**{name: value}).startswith(f"{name}={value!r}: ")


def test_hidden_sizes_are_each_checked() -> None:
    assert refused(hidden_sizes="64 0") == "hidden_sizes=0: must be at least 1. Try 64 64."


def test_without_a_budget_a_million_steps() -> None:
    assert (flat().run.budget_steps, flat().run.budget_s) == (1_000_000, None)


def test_another_budget_replaces_the_default_one() -> None:
    assert flat(duration="90s").run.budget_steps is None
    assert flat(num_episodes="1e3").run.budget_steps is None
    assert flat(num_episodes="1e3").run.total_episodes == 1000


def test_several_budgets_hold_together() -> None:
    run = flat(duration="0.5", total_timesteps="1e6").run
    assert (run.budget_steps, run.budget_s) == (1_000_000, 1800.0)


def test_a_bare_duration_is_hours_in_python_as_on_the_command_line() -> None:
    assert flat(duration=1.0).run.budget_s == flat(duration="1h").run.budget_s == 3600.0


def test_resume_says_where_from() -> None:
    assert flat(resume="runs/a").run.resume_from == Path("runs/a")
    assert flat(resume=True, output_dir="runs/b").run.resume_from == Path("runs/b")
    assert flat().run.resume_from is None
    assert "resume: needs a run" in refused(resume="true")


@pytest.mark.parametrize("other", [{"overwrite": True}, {"init_from": "runs/x"}])
def test_resume_contradicts_what_throws_a_run_away(other: dict[str, Any]) -> None:
    assert refused(resume="runs/a", **other).startswith(f"resume with {next(iter(other))}: ")
