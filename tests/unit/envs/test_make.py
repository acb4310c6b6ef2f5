"""`EnvRecipe`: ways to name an env, arguments, wrappers, native vector envs and errors."""

from __future__ import annotations

import copy
import pickle
import sys
import types
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from tests.unit.envs.toys import WALK, WALK_NATIVE_ONLY, SpaceEnv, Walk, register

from paceline.envs.make import NATIVE_FROM, EnvRecipe
from paceline.errors import ConfigError, EnvError, MissingExtra


def fails_to_construct() -> gym.Env[Any, Any]:
    raise RuntimeError("no licence")


def needs_a_package() -> gym.Env[Any, Any]:
    raise ModuleNotFoundError("No module named 'mujoco'")


def typed_wrongly() -> gym.Env[Any, Any]:
    raise TypeError("a bug inside")


def not_an_env() -> Any:
    return object()


@pytest.mark.parametrize(
    "source",
    [
        "CartPole-v1",
        "gymnasium.envs:CartPole-v1",
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        lambda: gym.make("CartPole-v1"),
    ],
)
def test_every_way_to_name_an_env(source: Any) -> None:
    spec = EnvRecipe(source=source).probe()
    assert [leaf.shape for leaf in spec.obs] == [(4,)]
    assert spec.action.nvec == (2,)
    assert not spec.masked


def test_no_checker_is_wrapped_around() -> None:
    env = EnvRecipe(source="CartPole-v1").make()
    assert "PassiveEnvChecker" not in str(env)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("CartPol-v1", "'CartPole-v1'"),
        ("cartpole-v1", "'CartPole-v1'"),
        ("CartPole", "'CartPole-v"),
        ("Humanoid-v2", "'Humanoid-v"),
        ("paceline/Bsy-v0", "'paceline/Busy-v0'"),
        ("gymnasium.envs:CartPol-v1", "'CartPole-v1'"),
        ("paceline.envs.fault:FaultEnb", "'FaultEnv'"),
        ("zzzzzzzzzzzzzz", "module:Id-v0"),
        ("no_such_package:Env-v0", "no module named 'no_such_package'"),
        ("paceline.envs.fault:get_arg", "'get_args'"),
    ],
)
def test_unknown_names_come_with_the_nearest(source: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EnvRecipe(source=source).make()
    assert expected in str(caught.value)
    assert source.rpartition(":")[2] in str(caught.value)


def test_a_module_that_breaks_while_imported_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "broken_module_of_mine.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"broken_module_of_mine.*ZeroDivisionError"):
        EnvRecipe(source="broken_module_of_mine:Env").make()


def test_atari_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtra, match=r"paceline\[atari\]"):
        EnvRecipe(source="ALE/NoSuchGame-v5").make()


@pytest.mark.parametrize(
    ("source", "kwargs", "expected"),
    [
        ("CartPole-v1", {"sutton_barto_rewad": True}, "'sutton_barto_reward'"),
        (SpaceEnv, {"lengt": 3}, "'length'"),
        ("paceline/Busy-v0", {"cpu": 3}, "'cpu'"),
        (lambda size: SpaceEnv(length=size), {}, "'size' is required"),
        (lambda: SpaceEnv(), {"size": 1}, "'size'"),
    ],
)
def test_wrong_kwargs_are_named(source: Any, kwargs: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        EnvRecipe(source=source, kwargs=kwargs).make()


def test_max_episode_steps_is_gymnasiums_own() -> None:
    env = EnvRecipe(source="CartPole-v1", kwargs={"max_episode_steps": 3}).make()
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_constructor_failures_are_told_from_settings() -> None:
    with pytest.raises(EnvError, match=r"env 3 .*constructor: RuntimeError: no licence") as caught:
        EnvRecipe(source=fails_to_construct).make(who="env 3 (seed 7)")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(EnvError, match="TypeError: a bug inside"):
        EnvRecipe(source=typed_wrongly).make()
    with pytest.raises(ConfigError, match="mujoco"):
        EnvRecipe(source=needs_a_package).make()
    with pytest.raises(ConfigError, match="object"):
        EnvRecipe(source=not_an_env).make()


def test_a_required_argument_from_the_registry_is_not_called_missing() -> None:
    def odd(size: int) -> gym.Env[Any, Any]:
        raise TypeError(f"size {size}")

    env_id = register("toys/Odd-v0", entry_point=odd, kwargs={"size": 4})
    with pytest.raises(EnvError, match="size 4"):
        EnvRecipe(source=env_id).make()


def test_an_env_object_instead_of_a_function_raises() -> None:
    with pytest.raises(ConfigError, match="lambda"):
        EnvRecipe(source=SpaceEnv())  # type: ignore[arg-type]


def test_probe_names_a_reset_that_raises() -> None:
    with pytest.raises(EnvError, match=r"reset.*fault in reset"):
        EnvRecipe(source="paceline.envs.fault:FaultEnv", kwargs={"mode": "raise_reset"}).probe()


def test_probe_names_a_missing_space() -> None:
    class NoSpace(gym.Env[Any, Any]):
        action_space = spaces.Discrete(2)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros(3, np.float32), {}

    with pytest.raises(ConfigError, match="must have an observation_space and an action_space"):
        EnvRecipe(source=NoSpace).probe()


def test_probe_closes_its_env_and_sees_masks() -> None:
    made: list[SpaceEnv] = []

    class Masked(SpaceEnv):
        def info(self) -> dict[str, Any]:
            return {"action_mask": np.ones(2, np.int8)}

    def make() -> SpaceEnv:
        made.append(Masked())
        return made[-1]

    assert EnvRecipe(source=make).probe().masked
    assert [env.closed for env in made] == [1]


def test_containers_in_kwargs_are_not_shared_but_arrays_are() -> None:
    class Keeps(SpaceEnv):
        def __init__(self, table: list[int], data: Any) -> None:
            super().__init__()
            self.table, self.data = table, data

    recipe = EnvRecipe(source=Keeps, kwargs={"table": [1], "data": np.zeros(3)})
    first, second = recipe.make().unwrapped, recipe.make().unwrapped
    assert isinstance(first, Keeps)
    assert isinstance(second, Keeps)
    first.table.append(2)
    assert second.table == recipe.kwargs["table"] == [1]
    assert first.data is second.data


def test_lambdas_closures_and_local_classes_can_be_pickled() -> None:
    length = 4

    class Local(SpaceEnv):
        pass

    for source in (lambda: SpaceEnv(length=length), lambda: Local(length=length)):
        recipe = pickle.loads(cloudpickle.dumps(EnvRecipe(source=source)))
        assert recipe.make().unwrapped.length == 4


def test_an_id_registered_in_a_script_is_pickled_with_the_recipe() -> None:
    env_id = register("toys/Scripted-v0", entry_point=lambda: SpaceEnv(length=9))
    data = cloudpickle.dumps(EnvRecipe(source=env_id, frame_stack=2))
    del gym.registry[env_id]  # What a freshly started worker's registry looks like.
    recipe = pickle.loads(data)
    assert recipe.make().unwrapped.length == 9
    assert recipe == EnvRecipe(source=env_id, frame_stack=2)
    assert copy.deepcopy(recipe) == recipe


def test_wrappers_are_applied_innermost_first(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_wrappers")
    module.Short = lambda env: TimeLimit(env, 2)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_wrappers", module)
    recipe = EnvRecipe(
        source=lambda: SpaceEnv(spaces.Box(-1, 1, (2, 2), np.float32)),
        wrappers=("my_wrappers:Short", "gymnasium.wrappers.FlattenObservation"),
    )
    env = recipe.make()
    assert str(env).startswith("<FlattenObservation<TimeLimit<")
    assert recipe.probe().obs[0].shape == (4,)


@pytest.mark.parametrize(
    ("wrapper", "error", "expected"),
    [
        ("gymnasium.wrappers:FlattenObservatio", ConfigError, "'FlattenObservation'"),
        ("FlattenObservation", ConfigError, "module:Name"),
        ("no_such_package:Wrap", ConfigError, "no_such_package"),
        (lambda env: None, ConfigError, "NoneType"),
        ("gymnasium.wrappers:TimeLimit", EnvError, "TimeLimit.*max_episode_steps"),
    ],
)
def test_wrapper_mistakes_name_the_wrapper(wrapper: Any, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        EnvRecipe(source=SpaceEnv, wrappers=(wrapper,)).make()


def test_native_vector_envs_are_used_for_large_groups() -> None:
    recipe = EnvRecipe(source="CartPole-v1")
    assert not recipe.use_native(NATIVE_FROM - 1)
    assert recipe.use_native(NATIVE_FROM)
    sooner = EnvRecipe(source="paceline/NetworkDefence-v0")  # says from which size on
    assert not sooner.use_native(1)
    assert sooner.use_native(2)
    assert not EnvRecipe(source="Pendulum-v1").use_native(64)
    assert not EnvRecipe(source=Walk).use_native(64)
    assert not EnvRecipe(source="CartPole-v1", native_vector="never").use_native(64)
    assert EnvRecipe(source="CartPole-v1", native_vector="always").use_native(1)
    assert not EnvRecipe(source="CartPole-v1", frame_stack=2).use_native(64)
    assert EnvRecipe(source=WALK_NATIVE_ONLY).use_native(1)


def test_one_vector_env_steps_all_groups_only_if_it_declares_that_they_are_the_same_as_single_envs() -> None:
    assert EnvRecipe(source="paceline/NetworkDefence-v0").one_vector
    assert EnvRecipe(source="paceline/WorkflowDefence-v0").one_vector
    assert not EnvRecipe(source="paceline/NetworkDefence-v0", vector_per_group=True).one_vector
    assert not EnvRecipe(source="CartPole-v1").one_vector
    assert not EnvRecipe(source="Pendulum-v1").one_vector
    assert not EnvRecipe(source=Walk).one_vector


def test_a_vector_env_without_autoreset_mode_is_not_used() -> None:
    class Silent(gym.vector.VectorEnv[Any, Any, Any]):
        pass  # its metadata says nothing

    env_id = register("toys/Silent-v0", entry_point=Walk, vector_entry_point=Silent)
    assert not EnvRecipe(source=env_id).use_native(64)


def test_always_native_raises_without_a_vector_env_or_with_wrappers() -> None:
    with pytest.raises(ConfigError, match="frame_stack=2"):
        EnvRecipe(source="CartPole-v1", frame_stack=2, native_vector="always")
    with pytest.raises(ConfigError, match="vector_entry_point"):
        EnvRecipe(source="Pendulum-v1", native_vector="always").use_native(4)
    with pytest.raises(ConfigError, match="vector_entry_point"):
        EnvRecipe(source=Walk).make_vector(4)


def test_make_vector_makes_the_envs_own() -> None:
    vector = EnvRecipe(source=WALK, kwargs={"mode": "SameStep"}).make_vector(3)
    assert vector.num_envs == 3
    vector.close()
    with pytest.raises(ConfigError, match="'mod'"):
        EnvRecipe(source="CartPole-v1", kwargs={"mod": 1}).make_vector(3)


def test_a_single_env_is_made_of_an_id_with_only_a_vector_env() -> None:
    env = EnvRecipe(source=WALK_NATIVE_ONLY, frame_stack=2).make()
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4,)
    env.close()


@pytest.mark.parametrize("settings", [{"frame_stack": 0}, {"native_vector": "allways"}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        EnvRecipe(source="CartPole-v1", **settings)
