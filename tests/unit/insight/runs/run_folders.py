"""Run folders with known answers, written by the same code that real runs use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from paceline.insight.runs.columns import read_columns
from paceline.insight.runs.results import RunResult, read_run
from paceline.insight.runs.sides import Side, make_sides
from paceline.measure.episodes import Episodes
from paceline.measure.folder import PROGRESS, RunFolder
from paceline.measure.record import PROGRESS_HEADER, EvaluationRow, Iteration, RunRecord, Summary

SUMMARY = Summary(
    algo="ppo",
    env="CartPole-v1",
    seed=7,
    n_envs=32,
    num_workers=0,
    group_size=4,
    steps=100_000,
    episodes=900,
    iterations=25,
    wall_s=10.0,
    startup_s=1.5,
    training_s=10.0,
    fps=10_000.0,
    final_eval=EvaluationRow(480.0, 480.0),
    best_eval=EvaluationRow(500.0, 500.0),
    phases={"env": 4.0, "inference": 2.0, "learn": 3.0, "wait": 0.5, "record": 0.1},
    peak_memory_mb=300.0,
    lag={},
    restarts=0,
    weights_sha256="",
    finished=True,
    stop_reason="total_timesteps",
)
MACHINE = {
    "cpu": "Testium 9",
    "cores": {"logical": 8, "affinity": [0, 1], "quota": None},
    "memory_mb": 4096,
    "versions": {"paceline": "0.1.0", "torch": "2.13.0"},
}


def config(**changes: Any) -> dict[str, dict[str, Any]]:
    """What config.yaml says; `training__n_steps=64` changes one setting."""
    content: dict[str, dict[str, Any]] = {
        "env": {"env": "CartPole-v1", "env_kwargs": {}, "n_envs": 32, "env_timeout_s": 60.0},
        "parallel": {"num_workers": 0},
        "training": {"n_steps": 128, "learning_rate": 0.0003},
        "policy": {"hidden_sizes": [64, 64]},
        "run": {"algo": "ppo", "seed": 7, "duration": "60s", "output_dir": "anywhere", "total_timesteps": None},
    }
    for name, value in changes.items():
        section, key = name.split("__")
        content[section][key] = value
    return content


def summarised(path: Path, **changes: Any) -> Path:
    """A finished run that is known by its summary and config only."""
    path.mkdir(parents=True, exist_ok=True)
    RunFolder(path).write_json("summary.json", replace(SUMMARY, **changes))
    RunFolder(path).write_json("config.yaml", config())
    RunFolder(path).write_json("system_info.json", MACHINE)
    RunFolder(path).write("command.txt", f"paceline train ppo --output-dir {path.name}\n")
    return path


def recorded(
    path: Path,
    *,
    iterations: int = 3,
    returns: Callable[[int], float] = lambda i: 20.0 * i,
    others: Sequence[float] = (),
) -> Path:
    """A run that was killed: 1,000 steps, 10 episodes and half a second for each iteration.

    All episodes of iteration i return `returns(i)`. Others used `others[i - 1]` percent of a core, if that is known.
    """
    folder = RunFolder.create(path, env="E", algo="ppo", seed=0)
    with closing(RunRecord(folder)) as record:
        seen: list[float] = []
        for i in range(1, iterations + 1):
            seen += [returns(i)] * 10
            known = {"cpu_others_percent": others[i - 1]} if others else {}
            record(_iteration(i, float(np.mean(seen[-100:])), known), _episodes(i, returns(i)))
    return path


def complete(path: Path, *, iterations: int = 30, returns: Callable[[int], float], **changes: Any) -> Path:
    """A finished run with everything that a comparison reads."""
    recorded(path, iterations=iterations, returns=returns)
    known: Mapping[str, Any] = {"steps": 1000 * iterations, "episodes": 10 * iterations, "wall_s": 0.5 * iterations}
    return summarised(path, **{**known, **changes})


def read_all(*paths: Path) -> list[RunResult]:
    return [read_run(path) for path in paths]


def read_progress(folder: Path) -> list[dict[str, float]]:
    """The rows of progress.csv by column; empty cells are left out."""
    columns = read_columns(folder / PROGRESS, PROGRESS_HEADER)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [{k: v for k, v in zip(columns, row, strict=True) if not math.isnan(v)} for row in rows]


def sides(*runs: RunResult | list[RunResult]) -> tuple[Side, ...]:
    """A list is a side of several runs, called A, B, ...; a run is a side of its own."""
    groups: list[tuple[str | None, list[RunResult]]] = [
        (chr(ord("A") + i), run) if isinstance(run, list) else (None, [run]) for i, run in enumerate(runs)
    ]
    return make_sides(groups)


def rewrite_config(path: Path, **changes: Any) -> Path:
    (path / "config.yaml").write_text(yaml.safe_dump(config(**changes)))
    return path


def _iteration(i: int, mean: float, system: Mapping[str, float]) -> Iteration:
    return Iteration(
        iteration=i,
        steps=1000 * i,
        episodes=10 * i,
        wall_s=0.5 * i,
        training_s=0.5 * i - (0.1 if i >= 2 else 0.0),
        iteration_steps=1000,
        iteration_episodes=10,
        iteration_s=0.5,
        ep_rew_mean=mean,
        ep_len_mean=20.0,
        phases={"env": 0.125, "inference": 0.125, "learn": 0.125, "eval": 0.1 if i == 2 else 0.0},
        train={"loss": mean / 3},
        evaluation=EvaluationRow(100.0 if i == 2 else 90.0, 1.0) if i > 1 else None,
        parallel={"worker_restarts": 1},
        system={"cpu_percent": 0.0 if i == 1 else 100.0 + i, "pss_mb": 100.0 * i, **system},
    )


def _episodes(i: int, value: float) -> Episodes:
    n = 10
    return Episodes(
        t=np.arange(n),
        env=np.arange(n),
        returns=np.full(n, value),
        length=np.full(n, 20),
        step=1000 * (i - 1) + 100 * np.arange(1, n + 1),
    )
