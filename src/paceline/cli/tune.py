"""`paceline tune`: learning by other `grad_shards` and `learner_threads`, in turns, and whether one would be faster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.cli.flags import parse
from paceline.cli.measured import keep, ticker
from paceline.errors import check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """What `tune` takes besides the settings of a training."""

    rounds: int = 7
    """Windows of each setting. Of fewer than 3 nothing is concluded."""
    window_s: float = 3.0
    """Seconds of a round, shared out between the settings; at least one rollout's learning for each."""
    json: Path | None = None
    """File to write the result to."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("rounds", self.rounds, "Try 7.", at_least=1)
        check_range("window_s", self.window_s, "Try 3.", above=0)


def run(argv: Sequence[str]) -> int:
    """Measure, print the table and the verdict, write the JSON."""
    config, options = parse(
        argv,
        prog="paceline tune",
        description="Whether PPO would learn faster here with other grad_shards or learner_threads. Changes nothing.",
        extra=TuneOptions,
    )
    # Only now: torch takes longer to load than all of the above.
    from paceline.insight.tune import tune

    outcome = tune(config, rounds=options.rounds, window_s=options.window_s, tick=ticker("tune")).json()
    keep(outcome, options.json)
    _show(Console(highlight=False, soft_wrap=True), f"{config.env_name}, {config.n_envs} envs", outcome)
    sys.stdout.flush()
    return 0


def _show(console: Console, title: str, outcome: dict[str, Any]) -> None:
    learner, workers = outcome["learner"], outcome["num_workers"]
    table = Table(title=f"{title}, {workers or 'no'} workers", title_justify="left")
    for column in ("grad_shards", "learner_threads", "updates/s", "times the current"):
        table.add_column(column, justify="right")
    for row in learner["settings"]:
        setting = {name: row[name] for name in learner["current"]}
        speed = "current" if setting == learner["current"] else f"{row['speedup']:.2f} ± {row['speedup_spread']:.2f}"
        table.add_row(*map(str, setting.values()), f"{row['updates_per_s']:,.1f}", speed)
    console.print(table)
    console.print(learner["hint"] or "Nothing that was tried is faster beyond the noise: leave them as they are.")
