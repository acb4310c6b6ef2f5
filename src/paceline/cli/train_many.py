"""`paceline train-many ALGO --seeds 0..5`: train several seeds in parallel and summarise them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline.config.algorithms import ALGORITHMS
from paceline.config.arguments import hyphenated
from paceline.config.coerce import coerce
from paceline.config.flags import NoOptions, parse
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError, check_range, nearest
from paceline.insight.many import (
    NUMBERS,
    SUMMARY_CSV,
    SUMMARY_JSON,
    ManySummary,
    SeedRun,
    SeedRuns,
    SeedState,
    Spread,
    last_lines,
    make_slots,
    read_seeds,
)
from paceline.measure.folder import COMMAND, require_writable
from paceline.measure.panel import duration, number, plural
from paceline.measure.table import print_table
from paceline.system.limits import allowed_cores

REFRESH_S = 1.0
SHOWN_LINES = 12
"""Lines shown from the end of the log of a failed seed."""
STYLES: dict[SeedState, str] = {
    "waiting": "dim", "running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red",
}  # fmt: skip
LOGS = "logs"
TABLE_COLUMNS = ("seed", "state", "final eval", "best eval", "steps", "steps/s", "time")


def run(argv: Sequence[str]) -> int:
    """Train every seed, print the table over seeds and return the exit code."""
    parser = _parser()
    if argv and argv[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    names = ", ".join(ALGORITHMS)
    if not argv or argv[0].startswith("-"):
        raise ConfigError(
            f"train-many: an algorithm comes first ({names}). "
            f"Use paceline train-many {next(iter(ALGORITHMS))} --env CartPole-v1 --seeds 0..3 --output-dir "
            "runs/cartpole."
        )
    algo = argv[0]
    if algo not in ALGORITHMS:
        raise ConfigError(f"{algo}: no such algorithm. {nearest(algo, ALGORITHMS)}")
    given, flags = parser.parse_known_args(hyphenated(argv[1:], parser))
    folder, seeds = _checked(given)
    jobs = [_job(algo, flags, folder, seed, resume=bool(given.resume)) for seed in seeds]
    config = _config(algo, jobs[0])
    if not (given.resume or config.run.overwrite) and (taken := [job for job in jobs if _begun(job.folder)]):
        raise ConfigError(
            f"output_dir {str(taken[0].folder)!r}: holds a run already. "
            "Choose another folder, continue with --resume, or replace the runs of these seeds with --overwrite."
        )
    cores, devices = allowed_cores(), _devices(given.devices, flags, config)
    at_once: int = len(devices or cores) if given.at_once is None else coerce(given.at_once, int, "at_once")
    check_range("at_once", at_once, "Leave it out for one per core, or per device.", at_least=1)
    at_once = min(at_once, len(jobs))
    runs = SeedRuns(jobs, make_slots(at_once, cores, devices))
    for each in (folder, folder / LOGS):
        require_writable(each, "output_dir")
    _run(runs)
    summary = ManySummary.of(jobs)
    _show(summary)
    _show_failures(jobs)
    about = {"algo": algo, "env": config.env_name, "at_once": at_once, "command": ["paceline", "train-many", *argv]}
    summary.write(folder, about)
    for name in (SUMMARY_JSON, SUMMARY_CSV):
        Console(highlight=False).print(f"written: {folder / name}", markup=False, soft_wrap=True)
    return runs.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline train-many",
        usage="paceline train-many ALGO --seeds SEEDS --output-dir DIR [FLAGS OF train]",
        description="Train one agent per seed, several in parallel, each in its own process and folder. The CPU cores "
        "are divided among the runs in parallel. Every other flag is passed to `paceline train ALGO`; "
        "`paceline train ALGO --help` describes them.",
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", metavar="SEEDS", help="0..5 (both ends included), 0,3,7, or a mix of the two")
    parser.add_argument(
        "--output-dir", metavar="DIR",
        help="output folder: runs in DIR/seed_N, their output in DIR/logs/seed_N.txt, mean and standard deviation over "
        f"seeds in {SUMMARY_JSON} and {SUMMARY_CSV}",
    )  # fmt: skip
    parser.add_argument(
        "--devices", metavar="A,B", help="devices to assign to parallel runs in turn, e.g. cuda:0,cuda:1"
    )
    parser.add_argument(
        "--at-once", metavar="N", help="number of runs in parallel (default: one per core, or per device)"
    )
    parser.add_argument(
        "--resume", nargs="?", const="true", metavar="true",
        help="resume the seeds that have a run, start the others",
    )  # fmt: skip
    parser.add_argument("--seed", help=argparse.SUPPRESS)
    return parser


def _checked(given: argparse.Namespace) -> tuple[Path, tuple[int, ...]]:
    """Check the command's own flags; return the output folder and the seeds."""
    if given.seed is not None:
        raise ConfigError(f"seed={given.seed}: train-many trains one agent for each of --seeds. Use paceline train.")
    if given.resume not in (None, "true"):
        raise ConfigError(f"resume={given.resume!r}: every seed resumes its own run. Write --resume alone.")
    if given.seeds is None:
        raise ConfigError("seeds: required (none given). Use --seeds 0..5, or 0,3,7.")
    if not given.output_dir:
        raise ConfigError("output_dir: required (none given), for the runs of all seeds. Use --output-dir DIR.")
    return Path(given.output_dir), read_seeds(given.seeds)


def _job(algo: str, flags: Sequence[str], folder: Path, seed: int, *, resume: bool) -> SeedRun:
    own = folder / f"seed_{seed}"
    # -P: a module in the current folder must not shadow one of Paceline's or of Python's.
    program = (sys.executable, "-P", "-m", "paceline", "train", algo)
    added = ("--seed", str(seed), "--output-dir", str(own), *(("--resume",) if resume and _begun(own) else ()))
    return SeedRun(seed=seed, folder=own, log=folder / LOGS / f"seed_{seed}.txt", command=(*program, *flags, *added))


def _begun(folder: Path) -> bool:
    return (folder / COMMAND).is_file()


def _config(algo: str, job: SeedRun) -> TrainConfig:
    """Parse the command line of one job, so that an error in it is raised once, before any child starts."""
    words = job.command[job.command.index(algo) + 1 :]
    config, _ = parse(words, prog="paceline train-many", description="", algo=algo, extra=NoOptions)
    if config.run.checkpoint_dir is not None:
        raise ConfigError(
            "checkpoint_dir: seeds cannot share one. Leave it out: each run writes checkpoints into its own folder."
        )
    return config


def _devices(text: str | None, flags: Sequence[str], config: TrainConfig) -> list[str]:
    """The devices of --devices, each checked; empty if the flag is not given."""
    devices = [] if text is None else [word.strip() for word in text.split(",")]
    if devices and any(word.partition("=")[0] == "--device" for word in flags):
        raise ConfigError(
            "device and devices: --device is for all seeds, --devices assigns one to each. Give one of the two."
        )
    for device in devices:
        config.merge(device=device)  # raises if it is not a device
    return devices


def _run(runs: SeedRuns) -> None:
    """Run all jobs. On a terminal, show a live table; elsewhere, print a line when a seed changes its state."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        runs.run(_reporter(runs, console))
        return
    # Refreshed by the loop that waits for the children, because forking in a process with threads may deadlock.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        drawn = float("-inf")

        def watch() -> None:
            nonlocal drawn
            if perf_counter() - drawn >= REFRESH_S:
                drawn = perf_counter()
                live.update(live_table(runs.jobs), refresh=True)

        runs.run(watch)


def _reporter(runs: SeedRuns, console: Console) -> Callable[[], None]:
    seen: dict[int, SeedState] = {job.seed: "waiting" for job in runs.jobs}

    def watch() -> None:
        for job in runs.jobs:
            if job.state != seen[job.seed]:
                seen[job.seed] = job.state
                cores = "" if job.slot is None else f", cores {' '.join(map(str, job.slot.cores))}"
                device = "" if job.slot is None or job.slot.device is None else f", {job.slot.device}"
                where = f"{cores}{device}" if job.state == "running" else ""
                console.print(f"seed {job.seed}: {job.state}{where}", markup=False, soft_wrap=True)

    return watch


def live_table(jobs: Sequence[SeedRun]) -> Table:
    """One row per seed: state, running time and the last line of its log."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("seed", "state", "time"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    table.add_column()  # the only column whose text is cut if the terminal is narrow
    for job in jobs:
        running = job.state == "running"
        newest = last_lines(job.log, 1) if running else []
        table.add_row(
            str(job.seed),
            Text(job.state, style=STYLES[job.state]),
            duration(perf_counter() - job.began) if running else "",
            Text("".join(newest), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _show(summary: ManySummary) -> None:
    rows: list[list[str | Text]] = [
        [str(row["seed"]), Text(row["state"], STYLES[row["state"]]), *(_cell(name, row[name]) for name in NUMBERS)]
        for row in summary.rows
    ]
    finished = sum(row["state"] == "finished" for row in summary.rows)
    over = ["mean ± std", plural(finished, "seed"), *(_spread(name, summary.over_seeds[name]) for name in NUMBERS)]
    rows.append([Text(cell, "bold") for cell in over])
    print_table(Console(highlight=False), TABLE_COLUMNS, rows, left=("seed", "state"))


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    match name:
        case "steps" | "fps":
            return f"{value:,.0f}"
        case "wall_s":
            return duration(value)
    return number(value)


def _spread(name: str, spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return _cell(name, spread.mean) + ("" if spread.std is None else f" ± {_cell(name, spread.std)}")


def _show_failures(jobs: Sequence[SeedRun]) -> None:
    """Print the last lines of the log of each failed seed."""
    console = Console(stderr=True, highlight=False)
    for job in jobs:
        if job.state == "failed":
            console.print(
                f"seed {job.seed}: failed (exit code {job.exit_code}). The end of {job.log}:",
                style="red",
                markup=False,
                soft_wrap=True,
            )
            for line in last_lines(job.log, SHOWN_LINES):
                console.print(f"  {line}", markup=False, soft_wrap=True)
