"""Same seed, same run: also over the nodes of a cluster, and after an interruption anywhere else."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden import test_dqn as dqn
from tests.golden import test_same_weights as ppo
from tests.inside import inside

from paceline.config.train_config import TrainConfig
from paceline.train.run import Run, open_folder

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster"), pytest.mark.timeout(300)]
RAY: dict[str, Any] = {"runtime": "ray", "ray_address": "auto"}


def on(nodes: int, workers: int = 1) -> dict[str, Any]:
    return {**RAY, "nodes": nodes, "workers_per_node": workers}


def of_ppo(case: str, **more: Any) -> TrainConfig:
    return ppo.config(case, "auto" if "runtime" in more else 0, **more)  # type: ignore[arg-type]


def of_dqn(case: str, **more: Any) -> TrainConfig:
    return dqn.config(dqn.DQN[case], "auto" if "runtime" in more else 0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", ppo.CASES)
def test_ppo(case: str) -> None:
    expected = ppo.train(of_ppo(case))
    for nodes, workers in ((1, 1), (2, 1), (3, 2)) if case == "CartPole" else ((3, 1),):
        found = ppo.train(of_ppo(case, **on(nodes, workers)))
        assert found.weights_sha256 == expected.weights_sha256, f"{nodes} x {workers}"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)
        assert (found.runtime, found.nodes, found.num_workers) == ("ray", nodes, nodes * workers)


@pytest.mark.parametrize("case", ["CartPole", "truncation, Box actions, normalisers"])
def test_ppo_in_a_pipeline(case: str) -> None:
    expected = ppo.train(of_ppo(case, pipeline=True))
    for nodes in (1, 3):
        found = ppo.train(of_ppo(case, pipeline=True, **on(nodes)))
        assert found.weights_sha256 == expected.weights_sha256, f"{nodes} nodes"


@pytest.mark.parametrize("case", dqn.DQN)
def test_dqn_in_batches(case: str) -> None:
    expected = dqn.train(of_dqn(case))
    for nodes, workers in ((1, 1), (2, 1), (3, 2)) if case == "episodes" else ((3, 1),):
        found = dqn.train(of_dqn(case, **on(nodes, workers)))
        assert found.weights_sha256 == expected.weights_sha256, f"{nodes} x {workers}"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


def test_self_play_of_ppo() -> None:
    expected = dqn.train(dqn.of_ppo("ppo", 0))
    assert dqn.train(dqn.of_ppo("ppo", "auto", **on(2, 2))).weights_sha256 == expected.weights_sha256  # type: ignore[arg-type]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_run_that_was_interrupted_on_a_cluster_goes_on_anywhere(algo: str, tmp_path: Path) -> None:
    case, (make, train) = ("truncation, Box actions, normalisers", (of_ppo, ppo.train)) if algo == "ppo" else (
        "steps, prioritised, three at a time", (of_dqn, dqn.train)
    )  # fmt: skip
    expected = train(make(case))
    folder = tmp_path / "run"
    first = train(make(case, output_dir=folder, **on(2)), interrupt_in=2)
    assert first.stop_reason == "SIGINT"
    layout = json.loads((folder / "layout.json").read_text())
    assert (layout["runtime"], layout["nodes"], layout["num_workers"]) == ("ray", 2, 2)
    assert [place["workers"] for place in layout["places"]] == [1, 1]
    last = train(make(case, output_dir=folder, resume=True))
    assert last.weights_sha256 == expected.weights_sha256
    assert (last.runtime, last.nodes, last.bytes_per_step) == ("inline", 1, 0.0)


@pytest.mark.parametrize(
    "more",
    [{"algo": "impala"}, {"algo": "appo", "normalize_obs": True}, {"algo": "dqn", "schedule": "async", "n_steps": 8}],
    ids=lambda more: more["algo"],
)
def test_asynchronous_modes_train(more: dict[str, Any]) -> None:
    settings = {"env": "tests.games:Drift", "n_envs": 12, "group_size": 2, "n_steps": 16, "n_eval_episodes": 0}
    if more["algo"] == "dqn":
        settings |= {"env": "CartPole-v1", "learning_starts": 100, "buffer_size": 3000}
    it = TrainConfig.from_flat(**{**settings, **more, **on(2, 2), "quiet": True, "total_timesteps": 4000})
    with Run(it) as run:
        before = run.training.weights.sha256()
        summary = run.go()
        assert summary.finished
        assert summary.steps >= 4000
        assert summary.weights_sha256 != before
        assert summary.restarts == 0
        if more["algo"] != "dqn":
            assert summary.lag["max"] <= it.training.max_lag  # type: ignore[attr-defined]
            rollouts = inside(run).rollouts
            assert rollouts.learned_steps + rollouts.dropped_steps == summary.steps


def test_what_moves_is_what_was_collected(tmp_path: Path) -> None:
    it = of_ppo("CartPole", output_dir=tmp_path / "run", **on(2))
    with Run(it, folder=open_folder(it)) as run:
        slots = inside(run).rollouts._slots
        fields = [field for field in slots.shape.fields() if not field.name.startswith("final")]
        each = sum(field.nbytes for field in fields) / (slots.shape.n_steps * slots.shape.n_envs)
        summary = run.go()
    assert each <= summary.bytes_per_step <= 1.05 * each
    with (tmp_path / "run" / "progress.csv").open() as file:
        for row in csv.DictReader(file):
            assert float(row["parallel/bytes_per_step"]) == pytest.approx(each, rel=0.05)


def test_workers_on_nodes_report_their_memory() -> None:
    summary = ppo.train(of_ppo("CartPole", **on(2, 2)))
    assert len(summary.worker_peak_mb) == 4
    assert min(summary.worker_peak_mb) > 1.0
    assert summary.peak_memory_mb is not None
    assert summary.peak_memory_mb > sum(summary.worker_peak_mb), "the driver is in it too"
