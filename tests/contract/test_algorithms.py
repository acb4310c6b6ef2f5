"""What every algorithm of the table must do, and the one that docs/how-to/add-an-algorithm.md adds."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.stored_runs import StopAfter

from paceline.config.algorithms import ALGORITHMS, Entry
from paceline.config.help_texts import field_help
from paceline.config.train_config import TrainConfig
from paceline.measure.record import Summary
from paceline.runtime.protocol import Job
from paceline.train.algorithms import algorithm
from paceline.train.plan import Algorithm
from paceline.train.run import Run, train

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-algorithm.md"
OURS = list(ALGORITHMS)
EXAMPLE = "a2c"
INLINE_ONLY = {"a3c", "impala", "appo"}
"""With workers, what these learn depends on the order in which workers finish."""
LEARNS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 16, "learning_rate": 1e-2, "n_epochs": 4, "normalize_reward": False},
    "impala": {"n_steps": 8, "learning_rate": 1e-2},
    "appo": {"n_steps": 8, "learning_rate": 1e-2},
    "a3c": {"n_steps": 8, "learning_rate": 1e-2},
    "dqn": {"n_steps": 8, "learning_rate": 1e-2, "learning_starts": 64, "exploration_fraction": 0.5},
    "a2c": {"n_steps": 8, "learning_rate": 1e-2},
}


@pytest.fixture(autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files on the import path, here and in workers, and its line in the table."""
    folder = tmp_path_factory.mktemp("page")
    for name, code in re.findall(r"^```python\n# ([\w.]+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code)
    assert {"a2c.py", "a2c_settings.py", "train_a2c.py"} <= {path.name for path in folder.iterdir()}
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    modules = ("a2c", "a2c_settings")
    from a2c_settings import A2CConfig  # type: ignore[import-not-found]

    monkeypatch.setitem(ALGORITHMS, EXAMPLE, Entry(A2CConfig, "a2c:A2C"))
    yield folder
    for module in modules:
        sys.modules.pop(module, None)


def config(algo: str, **settings: Any) -> TrainConfig:
    given = {"env": "tests.games:Bandit", "n_envs": 8, "group_size": 2, "seed": 3, "n_eval_episodes": 0, "quiet": True}
    return TrainConfig.from_flat(**{**given, **LEARNS[algo], "algo": algo, "total_timesteps": 512, **settings})


def trained(algo: str, **settings: Any) -> Summary:
    with Run(config(algo, **settings)) as run:
        return run.go()


def test_the_page_is_short() -> None:
    """An algorithm with a learner of its own fits on a page; PPO's learner may be shared instead."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(code) < 170


@pytest.mark.parametrize("algo", [*OURS, EXAMPLE])
def test_the_entry_names_an_algorithm_and_documented_settings(algo: str) -> None:
    entry = ALGORITHMS[algo]
    found: Algorithm[Job] = algorithm(algo)
    assert isinstance(found, Algorithm)
    texts = field_help(entry.settings)
    undocumented = [field.name for field in fields(entry.settings) if not texts.get(field.name)]
    assert undocumented == []
    assert entry.settings.__doc__


@pytest.mark.parametrize("algo", [*OURS, EXAMPLE])
def test_one_seed_is_one_run_and_another_seed_is_another(algo: str) -> None:
    first = trained(algo).weights_sha256
    assert trained(algo).weights_sha256 == first
    assert trained(algo, seed=4).weights_sha256 != first


@pytest.mark.parametrize("algo", [algo for algo in (*OURS, EXAMPLE) if algo not in INLINE_ONLY])
def test_two_workers_give_the_weights_of_one_process(algo: str) -> None:
    assert trained(algo, num_workers=2).weights_sha256 == trained(algo).weights_sha256


@pytest.mark.parametrize("algo", [*OURS, EXAMPLE])
@pytest.mark.parametrize("workers", [0, 2])
def test_it_learns_which_arm_pays(algo: str, workers: int) -> None:
    with Run(config(algo, num_workers=workers, total_timesteps=6_000)) as run:
        summary = run.go()
        assert summary.steps >= 6_000
        evaluator = run.training.evaluator()
        assert evaluator.evaluate(20).mean_reward > 0.9
        evaluator.close()


@pytest.mark.parametrize("algo", [*OURS, EXAMPLE])
def test_a_learner_continues_from_its_state(algo: str) -> None:
    with Run(config(algo)) as run:
        run.go()
        learner = run.training.learner
        state = {name: np.array(value) for name, value in learner.state().items()}
        weights = run.training.weights.vector.numpy().copy()
        run.go(steps=512)
        assert not np.array_equal(run.training.weights.vector.numpy(), weights)
        learner.load(state)
        assert np.array_equal(run.training.weights.vector.numpy(), weights)
        again = learner.state()
        assert again.keys() == state.keys()
        assert all(np.array_equal(again[name], state[name]) for name in state)


@pytest.mark.parametrize("algo", [algo for algo in (*OURS, EXAMPLE) if algo not in INLINE_ONLY])
def test_a_run_that_is_stopped_and_resumed_is_the_same_run(algo: str, tmp_path: Path) -> None:
    whole = trained(algo, total_timesteps=1024)
    settings = {"total_timesteps": 1024, "output_dir": tmp_path / "run"}
    half = train(config(algo, **settings), callbacks=[StopAfter(2)])
    assert half.steps < 1024
    rest = train(config(algo, **settings, resume=True, num_workers=2))
    assert rest.steps == whole.steps
    assert rest.weights_sha256 == whole.weights_sha256
