"""`paceline tune`: time the learner with other `grad_shards` and `learner_threads`, in alternating windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.cli.measured import progress_printer, write_result
from paceline.config.flags import parse
from paceline.errors import check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """Flags of `tune`, in addition to those of `train ppo`."""

    rounds: int = 7
    """Rounds; each times every setting once. With fewer than 3 rounds there is no verdict."""
    window_s: float = 3.0
    """Seconds per round, divided among the settings; each learns from at least one rollout."""
    json: Path | None = None
    """Write the result to this JSON file."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("rounds", self.rounds, "Try 7.", at_least=1)
        check_range("window_s", self.window_s, "Try 3.", above=0)


def run(argv: Sequence[str]) -> int:
    """Measure, print the table and the verdict, write the JSON."""
    config, options = parse(
        argv,
        prog="paceline tune",
        description="Measure whether PPO learns faster on this machine with other grad_shards and learner_threads: how "
        "the gradient of a minibatch is divided among processes and threads. Prints a recommendation and changes no "
        "setting. It searches no hyperparameters: those of the command line are used.",
        extra=TuneOptions,
    )
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.insight.tune import tune

    outcome = tune(config, rounds=options.rounds, window_s=options.window_s, tick=progress_printer("tune")).json()
    write_result(outcome, options.json)
    _show(Console(highlight=False, soft_wrap=True), f"{config.env_name}, {config.n_envs} envs", outcome)
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
    console.print(learner["hint"] or "No setting is faster beyond the noise: keep the current one.")
