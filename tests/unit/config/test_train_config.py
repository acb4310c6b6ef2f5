from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paceline.config.algorithms import ALGORITHMS
from paceline.config.names import ALIASES
from paceline.config.train_config import TrainConfig, section_of, section_types
from paceline.errors import ConfigError


def flat(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"env": "CartPole-v1", **settings})


def refused(**settings: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        flat(**settings)
    return str(raised.value)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# Sizes


def test_a_batch_size_that_does_not_divide_is_refused_with_the_numbers_and_one_that_does() -> None:
    assert refused(batch_size=1500) == (
        "batch_size=1500: must divide n_steps*n_envs = 64*32 = 2048 (or be at least that, for one full batch). "
        "Try 1024."
    )
    assert flat(batch_size=1024).training.batch_size == 1024


@pytest.mark.parametrize("size", [2048, 5000, 10**6])
def test_a_batch_size_of_at_least_the_batch_is_one_full_batch(size: int) -> None:
    assert flat(batch_size=size).batch_steps == 2048


@given(n_steps=st.integers(1, 300), n_envs=st.integers(1, 64), size=st.integers(2, 5000))
def test_the_batch_size_that_is_suggested_is_accepted(n_steps: int, n_envs: int, size: int) -> None:
    settings = {"n_steps": n_steps, "n_envs": n_envs, "normalize_advantage": False}
    try:
        flat(batch_size=size, **settings)
    except ConfigError as error:
        suggested = str(error).rpartition("Try ")[2].rstrip(".")
        assert (n_steps * n_envs) % size
        flat(batch_size=suggested, **settings)
    else:
        assert (n_steps * n_envs) % size == 0 or size >= n_steps * n_envs


def test_a_single_step_cannot_be_normalised() -> None:
    assert refused(n_steps=1, n_envs=1).startswith("n_steps*n_envs = 1: ")


# Groups and workers


@pytest.mark.parametrize(
    ("n_envs", "vector", "image"),
    [
        (32, 4, 8),
        (64, 8, 8),
        (128, 8, 8),
        (8, 1, 4),
        (16, 2, 8),
        (24, 3, 8),
        (1, 1, 1),
        (7, 1, 1),
        (13, 1, 1),
        (100, 5, 5),
        (2, 1, 1),
    ],
)
def test_the_group_size_depends_on_n_envs_alone(n_envs: int, vector: int, image: int) -> None:
    config = flat(n_envs=n_envs, batch_size=10**6)
    assert (config.group_size(image=False), config.group_size(image=True)) == (vector, image)


@given(st.integers(1, 500))
def test_the_group_size_is_the_largest_that_the_rule_allows(n_envs: int) -> None:
    config = flat(n_envs=n_envs, batch_size=10**6)
    legal = [g for g in range(1, 9) if n_envs % g == 0 and n_envs // g >= 8] or [1]
    assert config.group_size(image=False) == max(legal)
    assert n_envs % config.group_size(image=False) == 0


def test_a_given_group_size_holds_for_every_policy_and_must_divide() -> None:
    config = flat(group_size=16)
    assert (config.group_size(image=False), config.group_size(image=True)) == (16, 16)
    assert refused(group_size=5) == "group_size=5: must divide n_envs=32. Try 4."


def test_more_workers_than_groups_names_the_group_size_to_use() -> None:
    message = refused(num_workers=12)
    assert message.startswith("num_workers=12: a worker owns whole groups, and n_envs=32 in groups of 4 makes 8. ")
    assert message.endswith("Use num_workers=8 (4 for images), or group_size=2, which changes the weights.")
    assert flat(num_workers=12, group_size=2).group_size(image=False) == 2


def test_more_workers_than_envs_names_the_envs_to_use() -> None:
    message = refused(num_workers=5, n_envs=4)
    assert message.endswith("Use num_workers=4 (2 for images), or n_envs=5, which changes the weights.")


def test_workers_are_checked_again_once_images_are_known() -> None:
    config = flat(num_workers=8)
    with pytest.raises(ConfigError, match=r"groups of 8 makes 4\. Use num_workers=4, or group_size=4"):
        config.check_groups(image=True)


@pytest.mark.parametrize(("workers", "expected"), [(4, 32), (1, 8), (0, 8), ("4", 32)])
def test_envs_per_worker_is_shorthand_for_the_total(workers: Any, expected: int) -> None:
    config = flat(num_workers=workers, num_envs_per_worker=8)
    assert config.n_envs == config.env.n_envs == expected
    assert config.parallel.num_envs_per_worker is None


def test_envs_per_worker_needs_a_number_of_workers() -> None:
    assert refused(num_envs_per_worker=8).startswith("num_envs_per_worker=8: needs a number of workers")


def test_envs_per_worker_must_agree_with_n_envs() -> None:
    message = refused(num_workers=4, num_envs_per_worker=8, n_envs=16)
    assert message.startswith("n_envs=16: differs from num_workers*num_envs_per_worker = 4*8 = 32.")
    assert flat(num_workers=4, num_envs_per_worker=8, n_envs=32).n_envs == 32


def test_the_number_of_envs_does_not_depend_on_the_machine_or_the_workers() -> None:
    assert [flat(num_workers=workers).n_envs for workers in (0, 1, 8, "auto")] == [32] * 4


def test_one_env_is_sequential() -> None:
    assert flat(n_envs=1).num_workers == 0
    assert flat(n_envs=1, num_workers=1).num_workers == 1
    assert flat().num_workers == "auto"


# Budgets


# Names


def test_dashes_underscores_and_aliases_are_one_name() -> None:
    config = flat(**{"n-steps": "64", "parallel-start-method": "spawn", "num_envs": 16, "n_timesteps": 5})
    assert config.training.n_steps == 64
    assert config.parallel.start_method == "spawn"
    assert config.n_envs == 16
    assert config.run.total_timesteps == 5


def test_a_typo_gets_the_nearest_name() -> None:
    assert refused(n_step=5) == "n_step: no such setting. Did you mean 'n_steps'?"
    assert refused(sync_every=5) == "sync_every: no such setting. It is a setting of impala and appo, not of ppo."
    assert refused(nothing_like_it=5) == (
        "nothing_like_it: no such setting. `paceline train ppo --help-all` lists all settings."
    )


def test_names_of_other_libraries_are_translated_or_explained() -> None:
    assert "Did you mean 'hidden_sizes'?" in refused(net_arch=[64])
    assert "'gae_lambda' is a setting of ppo and a3c, not of dqn." in refused(algo="dqn", lam=0.9)
    assert "The progress display is on unless quiet is set." in refused(verbose=1)
    assert "TensorBoard events are always written" in refused(tensorboard_log="logs")


def test_common_aliases_are_accepted() -> None:
    config = flat(lr=1e-3, total_steps=5, workers=2, envs=8)
    assert (config.training.learning_rate, config.run.total_timesteps) == (1e-3, 5)
    assert (config.parallel.num_workers, config.n_envs) == (2, 8)


def test_a_setting_and_its_alias_together_are_refused() -> None:
    said = "total_episodes: given twice (num_episodes and total_episodes are the same). Give it once."
    assert refused(num_episodes=5, total_episodes=6) == said


def test_flag_names_are_unique_over_sections_and_aliases_point_somewhere() -> None:
    for algo in ALGORITHMS:
        known = section_of(algo)
        assert len(known) == sum(len(fields(cls)) for cls in section_types(algo).values())
        assert set(ALIASES.values()) <= known.keys()
        assert not ALIASES.keys() & known.keys()


def test_env_is_required() -> None:
    for settings in ({}, {"env": ""}):
        with pytest.raises(ConfigError, match=r"^env: required"):
            TrainConfig.from_flat(**settings)


# YAML

EXAMPLE = """
env:
  env: CartPole-v1
  env_kwargs: {sutton_barto_reward: true}
  n-envs: 16
parallel:
  num_workers: 2
training:
  learning_rate: 3e-4
  n_steps: 1e2
  batch_size: "8e2"
  target_kl: null
policy:
  hidden_sizes: [32, 16]
run:
  total_timesteps: 1e6
  num_episodes: 1_000
  duration: 15m
"""


def test_yaml_values_are_read_by_the_type_of_their_field(tmp_path: Path) -> None:
    config = TrainConfig.from_yaml(write(tmp_path, EXAMPLE))
    assert config.training.learning_rate == 3e-4
    assert (config.training.n_steps, config.training.batch_size) == (100, 800)
    assert (config.run.total_timesteps, config.run.total_episodes, config.run.budget_s) == (1_000_000, 1000, 900.0)
    assert all(
        type(n) is int for n in (config.training.n_steps, config.run.total_timesteps, config.training.batch_size)
    )
    assert config.policy.hidden_sizes == (32, 16)
    assert config.env.env_kwargs == {"sutton_barto_reward": True}
    assert (config.n_envs, config.parallel.num_workers) == (16, 2)


@pytest.mark.parametrize("text", ["3e-4", "'3e-4'", "0.0003", "3.0e-4", "3E-04"])
def test_yaml_spellings_of_a_learning_rate(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"env: {{env: X-v0}}\ntraining: {{learning_rate: {text}}}")
    assert TrainConfig.from_yaml(path).training.learning_rate == 3e-4


def test_numbers_of_env_kwargs_are_numbers_too(tmp_path: Path) -> None:
    config = TrainConfig.from_yaml(write(tmp_path, "env: {env: X-v0, env_kwargs: {a: 1e-3, b: 1e6, c: x1e6, d: -2E3}}"))
    assert config.env.env_kwargs == {"a": 1e-3, "b": 1e6, "c": "x1e6", "d": -2000.0}


def test_flags_win_over_yaml_and_omitted_ones_leave_it_alone(tmp_path: Path) -> None:
    config = TrainConfig.from_yaml(write(tmp_path, EXAMPLE), n_steps="200", seed="3")
    assert (config.training.n_steps, config.run.seed) == (200, 3)
    assert (config.training.batch_size, config.training.learning_rate, config.n_envs) == (800, 3e-4, 16)


def test_n_envs_and_num_envs_per_worker_replace_each_other(tmp_path: Path) -> None:
    total = write(tmp_path, "env: {env: X-v0, n_envs: 64}\nparallel: {num_workers: 2}")
    assert TrainConfig.from_yaml(total, num_envs_per_worker=8).n_envs == 16
    share = write(tmp_path, "env: {env: X-v0}\nparallel: {num_workers: 2, num_envs_per_worker: 8}")
    assert TrainConfig.from_yaml(share).n_envs == 16
    assert TrainConfig.from_yaml(share, n_envs=64).n_envs == 64
    assert TrainConfig.from_yaml(share, num_workers=4).n_envs == 32


def test_the_env_may_come_from_a_flag(tmp_path: Path) -> None:
    path = write(tmp_path, "training: {n_steps: 64}\nrun:\n")
    assert TrainConfig.from_yaml(path, env="X-v0").training.n_steps == 64
    with pytest.raises(ConfigError, match="env: required"):
        TrainConfig.from_yaml(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trainning: {n_steps: 5}", "no section 'trainning'. Did you mean 'training'?"),
        ("training: {n_step: 5}", "section 'training' has no setting 'n_step'. Did you mean 'n_steps'?"),
        ("training: {n_envs: 5}", "section 'training' has no setting 'n_envs'. It belongs in section 'env'."),
        ("n_steps: 5", "no section 'n_steps'. It belongs in section 'training'."),
        ("env: CartPole-v1", "section 'env' must hold settings"),
        ("- env", "must be sections of settings"),
        ("", "must be sections of settings"),
        ("env: {env: a, env: b}", "key 'env' twice"),
        ("run: {num_episodes: 5, total_episodes: 6}", "given twice"),
        ("env: {env: [", "must be plain YAML"),
        ("1: {a: 2}", "no section 1."),
        ("env: {env_kwargs: {a: 2024-99-99}}", "must be plain YAML"),
    ],
)
def test_yaml_mistakes_name_the_file_the_key_and_the_remedy(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_yaml(path)
    assert str(raised.value).startswith(f"config {str(path)!r}: ")
    assert said in str(raised.value)


# Copies


def full() -> TrainConfig:
    return flat(
        env_kwargs="a=1e-3 b=[1,2]",
        wrappers="m:A,m:B",
        num_workers=4,
        num_envs_per_worker=8,
        pin_cores="0-3",
        hidden_sizes="8 8",
        clip_range_vf=0.1,
        duration="15m",
        output_dir="runs/x",
        resume="runs/x",
        device="cuda:1",
    )


def test_yaml_round_trip(tmp_path: Path) -> None:
    for config in (flat(), full()):
        assert TrainConfig.from_yaml(write(tmp_path, config.to_yaml())) == config


def test_saved_config_means_the_same_with_another_worker_count(tmp_path: Path) -> None:
    path = write(tmp_path, full().to_yaml())
    assert TrainConfig.from_yaml(path, num_workers=2).n_envs == 32


def test_merge_changes_what_it_names_and_nothing_else() -> None:
    config = full()
    merged = config.merge(**{"n-steps": "256", "duration": None})
    assert (merged.training.n_steps, merged.run.duration) == (256, None)
    assert merged.merge(n_steps=64, duration="15m") == config
    assert config.training.n_steps == 64
    assert config.merge(num_envs_per_worker=4).n_envs == 16
    with pytest.raises(ConfigError, match="no such setting"):
        config.merge(n_stepz=1)


class Env:
    def __call__(self) -> None: ...


def test_python_objects_are_kept_and_saved_as_a_placeholder(tmp_path: Path) -> None:
    make = Env()
    config = flat(env=make, policy=Env, wrappers=[Env])
    assert config.env.env is make
    assert config.policy.policy is Env
    assert config.env.wrappers == (Env,)
    assert config.merge(seed=1).env.env is make
    assert config.env_name == "Env"
    assert flat(env=lambda: None).env_name.endswith("<lambda>")
    assert flat().env_name == "CartPole-v1"
    saved = yaml.safe_load(config.to_yaml())
    assert saved["env"]["env"].startswith("<Python object ")
    assert "Env" in saved["policy"]["policy"]


def test_configs_are_frozen_and_travel_by_pickle() -> None:
    config = full()
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(FrozenInstanceError):
        config.run = config.run  # type: ignore[misc]


def test_config_and_flags_do_not_import_torch() -> None:
    code = "import sys, paceline.config.train_config, paceline.config.flags; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("algo", [None, [], 3, {"ppo": 1}, "pppo"])
def test_an_unknown_algorithm_is_refused_by_name(algo: Any) -> None:
    with pytest.raises(ConfigError, match="no such algorithm"):
        TrainConfig.from_flat(env="CartPole-v1", algo=algo)
