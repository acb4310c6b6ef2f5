"""`paceline bench`: measure the speed-up of parallel over sequential training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.cli.measured import progress_printer, write_result
from paceline.config.flags import parse
from paceline.errors import ConfigError, check_range

INCONCLUSIVE = 0.10
"""A spread above this fraction of the ratio is reported as inconclusive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """Flags of `bench`, in addition to those of `train ppo`."""

    rounds: int = 5
    """Rounds. Each round times one window of each kind: limit, sequential, parallel, learner only."""
    window_s: float = 3.0
    """Seconds per window; a window has at least one iteration."""
    learner: bool = True
    """Also time the learner with other grad_shards and learner_threads, and report if one is faster."""
    json: Path | None = None
    """Write the result to this JSON file."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("rounds", self.rounds, "Try 5.", at_least=1)
        check_range("window_s", self.window_s, "Try 3.", above=0)


def run(argv: Sequence[str]) -> int:
    """Measure, print the table, write the JSON."""
    config, options = parse(
        argv,
        prog="paceline bench",
        description="Benchmark parallel against sequential PPO in alternating windows, and both against bare env "
        "loops, one per worker.",
        extra=BenchOptions,
    )
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.insight.bench import bench

    num_workers = config.parallel.num_workers
    if num_workers == 0:
        raise ConfigError("bench num_workers=0: the parallel side needs at least 1 worker. Try --num-workers 2.")
    result = bench(
        config,
        num_workers=None if num_workers == "auto" else num_workers,
        rounds=options.rounds,
        window_s=options.window_s,
        learner=options.learner,
        tick=progress_printer("bench"),
    )
    outcome = result.json()
    write_result(outcome, options.json)
    _show(Console(highlight=False), config.env_name, config.n_envs, outcome)
    return 0


def _show(console: Console, env: str, n_envs: int, outcome: dict[str, Any]) -> None:
    workers = outcome["parallel"]["num_workers"]
    table = Table(title=f"{env}, {n_envs} envs", title_justify="left")
    for column in ("", "steps/s", "env", "inference", "wait", "learn", "sync", "PSS"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("sequential", outcome["sequential"], outcome["phases_sequential"]),
        (f"parallel, {workers} workers", outcome["parallel"], outcome["phases"]),
    )
    for name, side, phases in rows:
        shares = [f"{100 * phases[phase]:.1f} %" for phase in ("env", "inference", "wait", "learn", "sync")]
        table.add_row(name, f"{side['steps_per_s']:,.0f}", *shares, f"{side['memory_mb']:,.0f} MB")
    table.add_row(f"limit: {workers} bare loops", f"{outcome['limit_steps_per_s']:,.0f}")
    console.print(table)
    for label, key in (("parallel / sequential", "speedup"), ("parallel / limit", "share_of_limit")):
        ratio, spread = outcome[key], outcome[f"{key}_spread"]
        warning = "  inconclusive: run again on a quieter machine" if spread > INCONCLUSIVE * ratio else ""
        rounds = len(outcome["limit_windows"])
        console.print(f"{label}: {ratio:.2f} ± {spread:.2f} (median of {rounds} rounds){warning}")
    if outcome["shortage"]:
        console.print(f"too little CPU to tell the speed of this machine: {outcome['shortage']}", soft_wrap=True)
    if outcome["learner"] and outcome["learner"]["hint"]:
        console.print(outcome["learner"]["hint"], soft_wrap=True)
