"""The config files and the Makefile do what their comments say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from paceline.config.ppo_settings import PPOConfig
from paceline.config.train_config import TrainConfig
from paceline.train.run import train

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def load(name: str) -> TrainConfig:
    return TrainConfig.from_yaml(ROOT / "configs" / f"ppo_{name}.yaml")


@pytest.mark.parametrize(
    ("name", "workers", "envs", "n_steps", "batch_size", "n_epochs"),
    [
        ("sequential", 0, 32, 128, 2048, 4),
        ("parallel", 4, 4 * 8, 128, 2048, 4),
        ("max_throughput", 8, 8 * 16, 128, 8192, 2),
        ("low_memory", 2, 2 * 4, 128, 256, 4),
    ],
)
def test_the_numbers_are_those_promised(
    name: str, workers: int, envs: int, n_steps: int, batch_size: int, n_epochs: int
) -> None:
    config = load(name)
    assert config.env_name == "CartPole-v1"
    training = config.training
    assert isinstance(training, PPOConfig)
    assert (config.num_workers, config.n_envs) == (workers, envs)
    assert (training.n_steps, training.batch_size, training.n_epochs) == (n_steps, batch_size, n_epochs)


def test_sequential_and_parallel_differ_in_who_does_the_work_only() -> None:
    one, other = load("sequential"), load("parallel")
    assert (one.env, one.training, one.policy, one.run) == (other.env, other.training, other.policy, other.run)
    assert one.group_size(image=False) == other.group_size(image=False)


@pytest.mark.parametrize("name", ["network_defence", "ludo"])
def test_sixteen_workers_can_share_the_envs(name: str) -> None:
    config = TrainConfig.from_yaml(ROOT / "configs" / f"{name}.yaml", num_workers=16)
    assert config.n_envs // config.group_size(image=False) >= 16


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_trains(path: Path, tmp_path: Path) -> None:
    config = TrainConfig.from_yaml(path, total_timesteps=1, num_workers=0, output_dir=tmp_path / "run", quiet=True)
    minibatches = {} if config.run.algo == "a3c" else {"batch_size": 64}
    config = config.merge(n_envs=8, group_size=None, n_steps=16, n_eval_episodes=1, **minibatches)
    assert train(config).steps == 8 * 16


def recipe(target: str, *settings: str, installed: bool = True) -> str:
    """What make would do, without the installation unless it is to be done."""
    done = subprocess.run(
        ["make", "-n", *(["-o", "setup"] if installed else []), target, *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return " ".join(done.stdout.replace("\\\n", " ").split())


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        ("train-sequential", [], "--config configs/ppo_sequential.yaml --env CartPole-v1 --duration 1.0"),
        ("train-sequential", ["DURATION=90s", "ENV=Acrobot-v1"], "--env Acrobot-v1 --duration 90s"),
        ("train-parallel", ["DURATION=2.0", "WORKERS=8"], "--duration 2.0 --num-workers 8 --n-envs 32"),
        ("train-parallel", ["ARGS=--overwrite"], "--num-workers 4 --n-envs 32 --output-dir runs/parallel --overwrite"),
        ("compare", [], "paceline compare --sequential runs/sequential --parallel runs/parallel --output-dir ."),
        ("tensorboard", [], "tensorboard --logdir runs"),
    ],
)
def test_make_targets_pass_their_settings_on(target: str, settings: list[str], said: str) -> None:
    assert said in recipe(target, *settings)


def test_the_demo_compares_two_runs_that_differ_in_who_does_the_work_only() -> None:
    said = recipe("demo")
    sequential, parallel = re.findall(
        r"paceline train ppo (.*?) --num-workers (\d) --output-dir (\S+) --overwrite", said
    )
    assert sequential == ("--config configs/demo.yaml", "0", "runs/demo_sequential")
    assert parallel == ("--config configs/demo.yaml", "2", "runs/demo_parallel")
    config = TrainConfig.from_yaml(ROOT / "configs" / "demo.yaml")
    assert config.run.duration is None, "equal steps, not equal seconds"
    assert config.run.total_timesteps


@pytest.mark.parametrize(
    ("target", "tools"), [("demo", False), ("tensorboard", False), ("bench", False), ("test", True)]
)
def test_a_target_installs_what_it_needs_in_a_fresh_clone(target: str, tools: bool, tmp_path: Path) -> None:
    said = recipe(target, f"VENV={tmp_path}/new", installed=False)
    assert "-c constraints.txt -e . " in said
    assert ("-c constraints.txt -e '.[dev]' " in said) == tools
    assert "-qq" not in said, "pip shows its progress"
