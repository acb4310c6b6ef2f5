"""Needs the extra `sb3`: `make test-sb3`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from tests.docs import test_docs_run
from tests.unit.vector.toys import SampleEnv

from paceline import PPO
from paceline.errors import MissingExtra
from paceline.integrations.sb3 import _vec_env_class, make_sb3_vec


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _vec_env_class.cache_clear()
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env.base_vec_env", None)
    with pytest.raises(MissingExtra, match=r"paceline\[sb3\]"):
        make_sb3_vec("CartPole-v1", 2)
    _vec_env_class.cache_clear()


def same(one: Any, other: Any) -> bool:
    return data_equivalence(one, other, exact=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_are_those_of_dummy_vec_env(workers: int) -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    make = partial(SampleEnv)
    theirs = vec_env.DummyVecEnv([make] * 3)
    ours = make_sb3_vec(make, 3, workers, monitor=False)
    for vec in (ours, theirs):
        vec.seed(5)
        vec.set_options({"start": 1})
    assert same(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    for _ in range(25):
        actions = np.random.default_rng(0).integers(0, 3, 3)
        got, wanted = ours.step(actions), theirs.step(actions)
        assert same(got[:3], wanted[:3])
        assert same(list(got[3]), list(wanted[3]))
        assert ours.reset_infos == theirs.reset_infos
    ours.close()


def test_attributes_methods_and_wrappers() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.monitor import Monitor

    vec = make_sb3_vec(SampleEnv, 3, 2, env_kwargs={"render_mode": "ansi"})
    assert vec.env_is_wrapped(Monitor) == [True] * 3
    assert vec.env_is_wrapped(gym.wrappers.TimeLimit, indices=1) == [False]
    vec.set_attr("label", "mine", indices=[0, 2])
    assert vec.get_attr("label") == ["mine", "new", "mine"]
    assert vec.env_method("twice", 4, and_more=1, indices=range(2)) == [9, 9]
    vec.set_attr("label", "last", indices=-1)
    assert vec.get_attr("label", indices=[-1, 0, -2]) == ["last", "mine", "new"]
    for wrong in (3, -4):
        with pytest.raises(IndexError, match=f"from -3 to 2.*got {wrong}"):
            vec.env_method("twice", 4, indices=wrong)
    assert vec.has_attr("label")
    assert not vec.has_attr("no_such_thing")
    vec.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_list_of_dict_actions_and_the_exception_of_an_env(workers: int) -> None:
    pytest.importorskip("stable_baselines3")

    class Strict(SampleEnv):
        def step(self, action: Any) -> Any:
            if action["a"] == 2:
                raise ValueError("2 is not allowed")
            return super().step(action)

    vec = make_sb3_vec(partial(Strict, None, gym.spaces.Dict({"a": gym.spaces.Discrete(3)})), 2, workers)
    vec.reset()
    vec.step([{"a": 0}, {"a": 1}])
    with pytest.raises(ValueError, match="2 is not allowed"):
        vec.step([{"a": 0}, {"a": 2}])


def test_sb3_trains_on_it() -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    vec = make_sb3_vec("CartPole-v1", 4, 2, seed=1)
    model = stable_baselines3.PPO("MlpPolicy", vec, n_steps=32, batch_size=64, n_epochs=1, device="cpu")
    model.learn(256)
    assert model.num_timesteps == 256
    assert len(model.ep_info_buffer) > 0
    vec.close()


def test_evaluate_policy_accepts_an_agent() -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    agent = PPO("CartPole-v1", num_workers=0)
    for env in (gym.make("CartPole-v1"), make_sb3_vec("CartPole-v1", 3, 0, monitor=False)):
        mean, _ = evaluation.evaluate_policy(agent, env, n_eval_episodes=6, warn=False)
        assert 8 <= mean <= 500
        env.close()


@pytest.mark.timeout(600)
def test_the_code_of_sb3_in_the_documentation_runs(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    page = test_docs_run.ROOT / "docs" / "how-to" / "coming-from-sb3.md"
    blocks = [block for block in test_docs_run._blocks(page) if "sb3" in block.marks]
    assert len(blocks) > 10
    for block in blocks:
        code = test_docs_run._short_code(block.code).replace(", progress_bar=True", "")  # needs tqdm
        (tmp_path / f"line_{block.line}.py").write_text(code, encoding="utf-8")
    scripts = [str(tmp_path / f"line_{block.line}.py") for block in blocks]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", test_docs_run.RUN_ALL, *scripts], env=one_thread, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
