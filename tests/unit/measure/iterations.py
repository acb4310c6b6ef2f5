"""Iterations and views of a run, for tests of its display."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from paceline.measure.panel import (
    panel,
)
from paceline.measure.record import EvaluationRow, Goal, Iteration, RunInfo, Summary
from paceline.measure.view import View

INFO = RunInfo(
    algo="ppo",
    env="CartPole-v1",
    seed=7,
    n_envs=32,
    group_size=4,
    num_workers=2,
    start_method="forkserver",
    folder="runs/[red]x",
)


def iteration(number: int, **changes: Any) -> Iteration:
    whole = Iteration(
        iteration=number,
        steps=1000 * number,
        episodes=10 * number,
        wall_s=0.5 * number,
        training_s=0.5 * number,
        iteration_steps=1000,
        iteration_episodes=10,
        iteration_s=0.5,
        ep_rew_mean=12.5,
        ep_len_mean=12.0,
        phases={"collect": 0.3, "learn": 0.15},
        parallel={"workers_alive": 2, "worker_idle_frac": 0.25, "worker_restarts": 0},
        system={"cpu_percent": 190.0, "pss_mb": 1234.0},
    )
    return replace(whole, **changes)


def view(*iterations: Iteration, goal: Goal | None = None, **changes: Any) -> View:
    newest = iterations[-1] if iterations else None
    whole = View(
        info=INFO,
        goal=goal or Goal(steps=10_000),
        newest=newest,
        recent=iterations,
        wall_s=newest.wall_s if newest else 0.0,
        since_s=0.0,
    )
    return replace(whole, **changes)


def drawn(one: View, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(panel(one, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


SUMMARY = Summary(
    algo="ppo", env="CartPole-v1", seed=7, n_envs=32, num_workers=2, group_size=4, steps=4000, episodes=40,
    iterations=4, wall_s=2.0, training_s=2.0, fps=2000.0,
    final_eval=EvaluationRow(480.0, 1.0), best_eval=EvaluationRow(490.0, 1.0),
    startup_s=1.5,
    phases={"collect": 1.2, "learn": 0.6}, peak_memory_mb=None, lag={}, restarts=1, weights_sha256="", finished=True,
    stop_reason="total_timesteps",
)  # fmt: skip
