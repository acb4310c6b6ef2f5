"""Same seed, same weights: they depend neither on the number of workers nor on interruptions."""

from __future__ import annotations

import csv
import functools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.inside import inside

from paceline.config.train_config import TrainConfig
from paceline.measure.record import Summary
from paceline.train import checkpoint
from paceline.train.run import Run, open_folder

ITERATIONS = 4
COMMON: dict[str, Any] = {
    "n_envs": 12,
    "group_size": 2,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "grad_shards": 3,
    "learning_rate": 3e-3,
    "n_eval_episodes": 0,
    "quiet": True,
    "seed": 7,
}
CASES: dict[str, dict[str, Any]] = {
    "CartPole": {"env": "CartPole-v1", "lr_schedule": "linear"},
    "truncation, Box actions, normalisers": {
        "env": "tests.games:Drift",
        "normalize_obs": True,
        "normalize_reward": True,
        "target_kl": 0.02,
        "clip_range_vf": 0.2,
    },
    "images, nature_cnn": {
        "env": "tests.games:Dots",
        "policy": "nature_cnn",
        "n_envs": 6,
        "n_steps": 8,
        "batch_size": 24,
        "n_epochs": 1,
    },
    "Dict observations, action masks": {"env": "tests.games:Cards", "ent_coef": 0.01},
    "native vector env": {"env": "CartPole-v1", "native_vector": "always"},
}
EXACT = [name for name in CASES if name != "native vector env"]
"""A native vector env cannot be restored: it starts new episodes after a resume."""


def config(case: str, workers: int, *, iterations: int = ITERATIONS, **more: Any) -> TrainConfig:
    settings = {**COMMON, **CASES[case], "num_workers": workers, **more}
    return TrainConfig.from_flat(**settings, total_timesteps=settings["n_envs"] * settings["n_steps"] * iterations)


def train(it: TrainConfig, *, interrupt_in: int | None = None) -> Summary:
    """Run to the end, or press Ctrl-C in the middle of an iteration."""
    folder = open_folder(it) if it.run.output_dir else None
    with Run(it, folder=folder) as run:
        rollouts, begin = inside(run).rollouts, inside(run).rollouts._begin
        count = 0

        def interrupting(version: int) -> Any:
            nonlocal count
            count += 1
            if count == interrupt_in:
                signal.raise_signal(signal.SIGINT)
            return begin(version)

        rollouts._begin = interrupting
        return run.go()


@functools.cache
def reference(case: str, *, pipeline: bool = False) -> Summary:
    """One sequential run of each case, made when it is first asked for."""
    return train(config(case, 0, pipeline=pipeline))


def worker_counts(case: str) -> tuple[int, ...]:
    """One, and groups divided evenly and unevenly; elsewhere one number, since tests below train all cases with two."""
    return (1, 2, 4) if case in ("CartPole", "native vector env") else (3,)


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_workers_trains_the_same_weights(case: str) -> None:
    expected = reference(case)
    assert expected.iterations >= ITERATIONS  # invalid rows of vector envs are no steps
    for workers in worker_counts(case):
        found = train(config(case, workers))
        assert found.num_workers == workers
        assert found.weights_sha256 == expected.weights_sha256, f"{workers} workers"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


@pytest.mark.parametrize("case", EXACT)
def test_any_number_of_env_threads_trains_the_same_weights(case: str) -> None:
    expected = reference(case)
    # With a thread for every env, parts of a worker's envs take turns in acting.
    for workers, threads in ((0, 4), (2, 64), *([(2, 4), (2, 1), (0, 64)] if case == "CartPole" else [])):
        found = train(config(case, workers, env_threads=threads))
        assert found.weights_sha256 == expected.weights_sha256, f"{workers} workers, {threads} threads"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


@pytest.mark.parametrize("case", EXACT)
def test_free_running_envs_train_the_same_weights(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def pays(_actor: Any, _spec: Any, n: int, _wait_s: float) -> bool:
        asked.append(n)
        return True

    monkeypatch.setattr("paceline.train.worker_recipe.pays", pays)
    expected = reference(case)
    found = train(config(case, 0, env_threads=64))  # in workers: tests/fault, which has a mode for it
    assert found.weights_sha256 == expected.weights_sha256
    assert (found.steps, found.episodes) == (expected.steps, expected.episodes)
    assert asked == ([] if "images" in case else [12]), "a convolution for one env would cost as much as for its group"


def test_env_threads_may_change_between_a_run_and_its_resume(tmp_path: Path) -> None:
    case = "truncation, Box actions, normalisers"
    train(config(case, 2, output_dir=tmp_path / "run", env_threads=4), interrupt_in=2)
    last = train(config(case, 0, output_dir=tmp_path / "run", resume=True, env_threads=3))
    assert last.weights_sha256 == reference(case).weights_sha256


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_any_start_method_trains_the_same_weights(method: str) -> None:
    expected = reference("CartPole")
    assert train(config("CartPole", 2, start_method=method)).weights_sha256 == expected.weights_sha256


def test_the_seed_and_the_config_matter() -> None:
    hashes = {reference(case).weights_sha256 for case in CASES}
    hashes.add(train(config("CartPole", 0, seed=8)).weights_sha256)
    hashes.add(train(config("CartPole", 0, iterations=3)).weights_sha256)
    hashes.add(train(config("CartPole", 0, group_size=3)).weights_sha256)
    assert len(hashes) == len(CASES) + 3


def progress(folder: Path) -> list[dict[str, str]]:
    """The rows of progress.csv without what depends on the clock and the machine."""
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    keep = ("iteration", "steps", "episodes", "rollout/", "train/")
    return [{key: value for key, value in row.items() if key.startswith(keep)} for row in rows]


def episodes(folder: Path) -> list[tuple[str, ...]]:
    with (folder / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [tuple(value for key, value in row.items() if "wall" not in key) for row in rows]


@pytest.mark.parametrize("case", EXACT)
def test_interrupted_and_resumed_is_as_if_nothing_had_happened(case: str, tmp_path: Path) -> None:
    """Compares weights, counters, schedules and tables; also resumes with another worker count, and twice."""
    expected = reference(case)
    straight = train(config(case, 0, output_dir=tmp_path / "straight"))
    assert straight.weights_sha256 == expected.weights_sha256, "writing a folder changes nothing"
    folder = tmp_path / "broken"
    first = train(config(case, 2, output_dir=folder), interrupt_in=1)
    assert (first.stop_reason, first.iterations, first.finished) == ("SIGINT", 1, False)
    second = train(config(case, 0, output_dir=folder, resume=True), interrupt_in=2)
    assert (second.stop_reason, second.iterations) == ("SIGINT", 3)
    last = train(config(case, 3, output_dir=folder, resume=True))
    assert last.weights_sha256 == expected.weights_sha256
    assert (last.steps, last.episodes, last.iterations) == (expected.steps, expected.episodes, expected.iterations)
    assert last.finished
    assert json.loads((folder / "summary.json").read_text())["weights_sha256"] == expected.weights_sha256
    assert progress(folder) == progress(tmp_path / "straight")
    assert episodes(folder) == episodes(tmp_path / "straight")
    ours, theirs = (checkpoint.load(checkpoint.find(f)).arrays for f in (folder, tmp_path / "straight"))
    assert {k: v.tobytes() for k, v in ours.items()} == {k: v.tobytes() for k, v in theirs.items()}


def test_a_vector_env_begins_new_episodes_after_a_resume_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    case = "native vector env"
    train(config(case, 2, output_dir=folder), interrupt_in=2)
    it = config(case, 0, output_dir=folder, resume=True)
    with Run(it, folder=open_folder(it)) as run:
        assert any("started a new episode" in note for note in run.notes)
        assert run.go().finished


def test_two_envs_never_begin_alike() -> None:
    with Run(config("CartPole", 0)) as run:
        first = inside(run).rollouts._slots.arrays["obs/obs"][-1]
        assert len({row.tobytes() for row in first}) == len(first) == COMMON["n_envs"]
