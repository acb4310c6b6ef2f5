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


def test_resume_needs_a_run() -> None:
    assert flat(resume="runs/a").run.resume_from == Path("runs/a")
    assert flat(resume=True, output_dir="runs/b").run.resume_from == Path("runs/b")
    assert flat().run.resume_from is None
    assert "resume: needs a run" in refused(resume="true")


@pytest.mark.parametrize("other", [{"overwrite": True}, {"init_from": "runs/x"}])
def test_resume_with_overwrite_or_init_from_is_refused(other: dict[str, Any]) -> None:
    assert refused(resume="runs/a", **other).startswith(f"resume with {next(iter(other))}: ")


RAY: dict[str, Any] = {"env": "CartPole-v1", "runtime": "ray"}
CLUSTER: dict[str, Any] = {**RAY, "ray_address": "auto"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"env": "CartPole-v1", "nodes": 2}, "nodes: needs a Ray cluster (runtime=local). Add --runtime ray."),
        ({"env": "CartPole-v1", "ray_address": "auto"}, "ray_address: needs a Ray cluster"),
        ({**CLUSTER, "num_workers": 4}, "num_workers=4: with runtime=ray the number of workers is set per node"),
        ({**CLUSTER, "num_workers": 0}, "num_workers=0: with runtime=ray the number of workers is set per node"),
        ({**CLUSTER, "pin_cores": "0"}, "pin_cores: unsupported with runtime=ray"),
        ({**RAY, "nodes": 2}, "nodes=2: without --ray-address a local Ray cluster of one node is started"),
        ({**CLUSTER, "nodes": 0}, "nodes=0: must be at least 1"),
        ({**CLUSTER, "workers_per_node": -1}, "workers_per_node=-1: must be at least 1"),
        ({**RAY, "ray_address": "ray://head:10001"}, "must be auto or HOST:PORT"),
        ({**RAY, "ray_address": "head"}, "must be auto or HOST:PORT"),
        ({**CLUSTER, "algo": "a3c"}, "runtime=ray: workers of a3c change shared weights in place"),
        (
            {**CLUSTER, "nodes": 4, "workers_per_node": 4, "n_envs": 32},
            "nodes*workers_per_node = 4*4 = 16: a worker owns whole groups, and n_envs=32 in groups of 4 makes 8. "
            "Use 8 workers or fewer (4 for images), or group_size=2, which changes the weights.",
        ),
        ({**CLUSTER, "num_envs_per_worker": 4}, "Use --nodes N --workers-per-node W, or --n-envs for the total"),
        ({**CLUSTER, "on_node_loss": "stop"}, "on_node_loss"),
        ({"env": "CartPole-v1", "runtime": "raye"}, "runtime"),
    ],
)
def test_settings_that_do_not_fit_a_ray_cluster_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_flat(**settings)
    assert text in str(raised.value)


def test_workers_of_all_nodes_share_the_envs() -> None:
    config = TrainConfig.from_flat(**CLUSTER, nodes=2, workers_per_node=4, num_envs_per_worker=8)
    assert config.n_envs == 64
    for address in ("auto", "10.0.0.1:6379", "head.cluster.local:6379", "[fd00::1]:6379"):
        assert TrainConfig.from_flat(**RAY, ray_address=address).parallel.ray_address == address
