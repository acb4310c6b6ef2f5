"""From the options of `paceline cyber` to a TrainConfig."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.training import (
    ALIGNMENT,
    EPISODES,
    GAME,
    PLAIN_ENV,
    WORKFLOW_ENV,
    CyberOptions,
    beneath,
    suited,
)
from paceline.errors import ConfigError


def test_the_default_leaves_groups_for_sixteen_workers() -> None:
    made = suited(config(num_workers=16), CyberOptions(), {"num_workers"})
    assert (made.n_envs, made.group_size(image=False)) == (100, 5)


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{**beneath(set(settings)), **settings})


def test_without_a_workflow_there_is_no_shaper_and_defaults_fill_the_game() -> None:
    made = suited(config(), CyberOptions(red_agent="bline"), set())
    assert (made.env.env, made.env.shaper, made.run.stop_at) == (PLAIN_ENV, None, {})
    assert made.env.env_kwargs == {**GAME, "red_agent": "bline"}


def test_a_workflow_brings_the_env_the_shaper_and_the_goal() -> None:
    options = CyberOptions(workflow=("user", "op_host", "op_server", "enterprise", "defender"), alignment_lambda=3.0)
    made = suited(config(), options, set())
    assert (made.env.env, made.env.shaper) == (WORKFLOW_ENV, ALIGNMENT)
    assert made.env.shaper_kwargs == {"alignment_lambda": 3.0}
    assert made.run.stop_at == {"compliance": 0.95}
    later = suited(made, CyberOptions(compliance="state", compliance_threshold=0.5), set())
    assert later.env.env_kwargs == made.env.env_kwargs
    assert later.env.shaper_kwargs == {"alignment_lambda": 3.0, "compliance": "state"}
    assert later.run.stop_at == {"compliance": 0.5}


def test_the_minibatch_size_suits_the_envs_unless_it_is_named() -> None:
    made = suited(config(n_envs=64), CyberOptions(), {"n_envs"})
    assert made.training.batch_size == 1600  # the largest divisor of 6,400 up to 2,000
    kept = suited(config(n_envs=64, batch_size=400), CyberOptions(), {"n_envs", "batch_size"})
    assert kept.training.batch_size == 400


def test_defaults_give_way_to_what_is_named() -> None:
    assert beneath(set())["total_episodes"] == EPISODES
    for budget in ("total_episodes", "total_timesteps", "duration"):
        assert "total_episodes" not in beneath({budget})
    assert "n_envs" not in beneath({"num_envs_per_worker"})


def test_workflows_are_read_in_fives() -> None:
    first, second = "op_server,enterprise,op_host,defender,user", "user,op_host,op_server,enterprise,defender"
    assert CyberOptions(workflow=(*first.split(","), *second.split(","))).workflows == [first, second]
    with pytest.raises(ConfigError, match="must name each of the 5 types once"):
        _ = CyberOptions(workflow=("op_server", "user")).workflows


@pytest.mark.parametrize("options", [CyberOptions(alignment_lambda=1.0), CyberOptions(compliance_threshold=1.0)])
def test_options_of_a_workflow_need_one(options: CyberOptions) -> None:
    with pytest.raises(ConfigError, match=r"need a workflow \(none given\)"):
        suited(config(), options, set())
