"""Recipes carry the settings of a config to workers, and the identity says which snapshots fit."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.games import Counter, Drift

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.runtime.protocol import Job
from paceline.train.recipes import env_recipe, evaluation_recipe, identity, policy_recipe, restarts_for, shaper_recipe
from paceline.train.restarts import Restarts


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"env": "CartPole-v1", "n_envs": 4, "num_workers": 0, **settings})


def test_the_env_recipe_has_all_settings_of_the_env() -> None:
    recipe = env_recipe(
        config(env="tests.games:Counter", env_kwargs={"length": 7}, frame_stack=2, native_vector="never")
    )
    assert (recipe.kwargs, recipe.frame_stack, recipe.native_vector) == ({"length": 7}, 2, "never")
    assert recipe.probe().obs[0].shape == (6,), "two frames of three numbers"
    env = pickle.loads(pickle.dumps(recipe)).make()
    assert env.unwrapped._length == 7
    env.close()


def test_evaluations_use_the_training_env_unless_another_is_set() -> None:
    settings = config(
        env="tests.games:Counter", env_kwargs={"length": 7}, wrappers=["gymnasium.wrappers:FlattenObservation"]
    )
    spec = env_recipe(settings).probe()
    assert evaluation_recipe(settings, spec) == env_recipe(settings)
    longer = evaluation_recipe(settings.merge(eval_env_kwargs={"terminates": True}), spec)
    assert longer.kwargs == {"length": 7, "terminates": True}
    other = evaluation_recipe(settings.merge(eval_env="tests.games:Counter", eval_env_kwargs={"length": 3}), spec)
    assert (other.kwargs, other.wrappers) == ({"length": 3}, env_recipe(settings).wrappers)
    given = evaluation_recipe(settings.merge(eval_env_kwargs={"terminates": True}), spec, lambda: Counter(4))
    assert given.kwargs == {}
    with pytest.raises(ConfigError, match=r"must be an id, .*\(got a Counter object\). Pass `lambda: MyEnv\(\)`"):
        evaluation_recipe(settings, spec, Counter())  # type: ignore[arg-type]


@pytest.mark.parametrize("env", ["Acrobot-v1", "tests.games:Cards", "tests.games:Drift"])
def test_an_evaluation_env_with_other_spaces_raises(env: str) -> None:
    settings = config(eval_env=env)
    with pytest.raises(ConfigError, match=rf"eval_env='{env}': its spaces must be those of env='CartPole-v1'"):
        evaluation_recipe(settings, env_recipe(settings).probe())


def test_the_policy_recipe_has_all_settings_of_the_network() -> None:
    spec = env_recipe(config()).probe()
    settings = config(hidden_sizes=(8, 4), activation="relu", seed=5)
    policy = policy_recipe(settings).build(spec)
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.named_parameters()}
    assert (shapes["weights.0"], shapes["weights.1"]) == ((4, 2, 8), (2, 8, 4)), "two towers"
    assert shapes["policy_weight"] == (2, 4)
    again, other = policy_recipe(settings).build(spec), policy_recipe(settings.merge(seed=6)).build(spec)

    def numbers(one: Any) -> list[float]:
        return [value for parameter in one.parameters() for value in parameter.detach().flatten().tolist()]

    assert numbers(policy) == numbers(again)
    assert numbers(policy) != numbers(other)


def test_the_shaper_recipe_has_the_shaper_and_its_arguments() -> None:
    assert shaper_recipe(config()) is None
    recipe = shaper_recipe(config(shaper="a.module:Shaper", shaper_kwargs={"weight": 2}))
    assert recipe is not None
    assert (recipe.source, recipe.kwargs) == ("a.module:Shaper", {"weight": 2})


def test_restarts_follow_the_recovery_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr("paceline.train.recipes.Restarts", lambda *args: seen.append(args))
    runtime: Any = object()
    made: Restarts[Job] | None = restarts_for(config(recovery="restart", max_restarts=7), runtime)
    assert made is None
    assert seen == [(runtime, "restart", 7)]


SAME: list[dict[str, Any]] = [{"seed": 9}, {"n_envs": 8}, {"learning_rate": 0.1}, {"n_steps": 64}]
OTHER: list[tuple[str, dict[str, Any]]] = [
    ("algo", {"algo": "impala"}),
    ("hidden_sizes", {"hidden_sizes": (8,)}),
    ("activation", {"activation": "relu"}),
    ("normalize_obs", {"normalize_obs": True}),
    ("policy", {"policy": "mlp"}),
]


@pytest.mark.parametrize("change", SAME)
def test_settings_that_leave_the_weights_valid_are_not_in_the_identity(change: dict[str, Any]) -> None:
    spec = env_recipe(config()).probe()
    assert identity(config(**change), spec, 10) == identity(config(), spec, 10)


@pytest.mark.parametrize(("key", "change"), OTHER)
def test_settings_that_change_the_weights_are_in_the_identity(key: str, change: dict[str, Any]) -> None:
    spec = env_recipe(config()).probe()
    before, after = identity(config(), spec, 10), identity(config(**change), spec, 10)
    assert {name for name in before if before[name] != after[name]} == {key}


def test_spaces_and_number_of_weights_are_in_the_identity() -> None:
    spec, other = env_recipe(config()).probe(), env_recipe(config(env=Drift)).probe()
    found = identity(config(), spec, 10)
    assert found["obs"] == [["obs", [4], "float32"]]
    assert found["action"] == ["categorical", [], [2]]
    assert found["weights"] == 10
    assert {"obs", "action"} <= {name for name, value in identity(config(), other, 10).items() if found[name] != value}


class OwnPolicy:
    """Only its name matters here."""


def test_the_users_own_policy_is_named_in_the_identity() -> None:
    spec = env_recipe(config()).probe()
    assert identity(config(policy=OwnPolicy), spec, 10)["policy"] == "OwnPolicy"
