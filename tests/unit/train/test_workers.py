"""Where a training runs: the learner's device, the layout of a given worker count, and central inference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.memory.slot_shape import SlotShape
from paceline.train import layout as layouts
from paceline.train.layout import Layout
from paceline.train.recipes import env_recipe, policy_recipe
from paceline.train.worker_recipe import WorkerRecipe
from paceline.train.workers import central_for, layout_for, learner_device, pick_device

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"env": "CartPole-v1", "n_envs": 32, "group_size": 4, "num_workers": 2, **settings})


@pytest.mark.parametrize(
    ("cuda", "mps", "device"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_cuda_then_mps_then_the_cpu(
    cuda: bool, mps: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert pick_device("auto") == torch.device(device)
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "meta"])
def test_a_device_that_this_machine_lacks_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=rf"device='{name}': torch finds no such device on this machine"):
        pick_device(name)


def test_a_misspelt_device_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ConfigError, match=r"device='gpu': must be cpu, cuda, cuda:N, mps or auto"):
        pick_device("gpu")


def test_in_a3c_the_learner_is_on_the_cpu_because_workers_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert learner_device(config(algo="ppo", device="auto")).type == "cuda"
    assert learner_device(config(algo="a3c", device="auto")) == CPU


def recipe_of(it: TrainConfig) -> WorkerRecipe:
    env = env_recipe(it)
    shape = SlotShape(env.probe(), it.rollout_steps, it.n_envs // 4, 4)
    return WorkerRecipe(
        env=env, policy=policy_recipe(it), shape=shape, seed=0, normalize_obs=False, env_threads=it.parallel.env_threads
    )


def test_a_given_worker_count_is_kept_and_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: Any, **__: Any) -> Layout:
        raise AssertionError("measured")

    monkeypatch.setattr(layouts, "choose", measured)
    it = config(num_workers=3, env_threads=5, start_method="spawn", learner_threads=2)
    layout = layout_for(it, recipe_of(it), 100)
    assert (layout.num_workers, layout.runtime, layout.env_threads, layout.nodes) == (3, "process", 5, 1)
    assert (layout.groups, layout.group_size, layout.start_method) == (8, 4, "spawn")
    assert (layout.threads_per_worker, layout.learner_threads) == (1, 2)
    assert layout.measured is None
    it = config(num_workers=0)
    assert (layout_for(it, recipe_of(it), 100).runtime, layout_for(it, recipe_of(it), 100).num_workers) == ("inline", 0)


@pytest.mark.parametrize(
    ("workers_", "asked", "given"), [(0, "auto", 1), (0, 3, 3), (2, "auto", "auto"), (2, 3, 3)], ids=str
)
def test_without_workers_envs_step_one_after_another_unless_threads_are_asked_for(
    workers_: int, asked: int | str, given: int | str
) -> None:
    it = config(num_workers=workers_, env_threads=asked)
    assert layout_for(it, recipe_of(it), 100).env_threads == given


@pytest.mark.parametrize(("budget", "rollouts"), [({"total_timesteps": 6400}, 6400 / (32 * 20)), ({}, None)])
def test_auto_measures_with_the_number_of_rollouts_that_the_budget_allows(
    budget: dict[str, Any], rollouts: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(layouts, "choose", lambda recipe, weights, **rest: seen.update(rest, weights=weights))
    budget = budget or {"total_episodes": 10}
    it = config(num_workers="auto", n_steps=20, env_timeout_s=7.0, start_timeout_s=8.0, **budget)
    layout_for(it, recipe_of(it), 123)
    assert seen["rollouts"] == rollouts
    assert (seen["weights"], seen["timeouts_s"]) == (123, it.env.timeouts_s)
    assert seen["common"]["groups"] == 8


def test_on_a_cluster_the_workers_are_those_that_were_reserved() -> None:
    it = config()
    cluster: Any = SimpleNamespace(nodes=3, workers=2)
    layout = layout_for(it, recipe_of(it), 100, cluster)
    assert (layout.num_workers, layout.runtime, layout.nodes) == (6, "ray", 3)
    assert layout.why == "3 node(s) with 2 worker(s) each"


def test_central_inference_is_the_default_on_a_gpu_and_off_on_a_cpu() -> None:
    assert central_for(config(), 8, CPU) is None
    on_gpu = central_for(config(), 8, GPU)
    assert on_gpu is not None
    assert (on_gpu.devices, on_gpu.groups) == (("cuda:0",), 2)
    assert central_for(config(inference="local"), 8, GPU) is None
    asked = central_for(config(inference="central"), 8, CPU)
    assert asked is not None
    assert asked.devices == ("cpu",)


def test_central_inference_follows_algorithm_and_group_count() -> None:
    assert central_for(config(algo="a3c"), 8, GPU) is None, "workers of a3c need the policy to learn"
    chunk = central_for(config(inference="central", inference_groups=5), 3, CPU)
    assert chunk is not None
    assert chunk.groups == 3, "not more groups than there are"
    few = central_for(config(inference="central"), 2, CPU)
    assert few is not None
    assert few.groups == 1
    for algo, whole in (("ppo", True), ("impala", False)):
        central = central_for(config(algo=algo, inference="central"), 8, CPU)
        assert central is not None
        assert central.whole is whole
