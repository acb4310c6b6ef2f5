"""`paceline train-many ALGO --seeds 0..5`: train several seeds in parallel and summarise them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline.config.algorithms import ALGORITHMS, nearest_algorithm
from paceline.config.coerce import coerce
from paceline.config.flags import NoOptions, parse
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError, check_range
from paceline.insight.many import (
    NUMBERS,
    SUMMARY_CSV,
    SUMMARY_JSON,
    ManySummary,
    SeedRun,
    SeedRuns,
    SeedState,
    Spread,
    allowed_cores,
    last_lines,
    make_slots,
    read_seeds,
)
from paceline.measure.folder import COMMAND
from paceline.measure.panel import duration, number, plural

REFRESH_S = 1.0
SHOWN_LINES = 12
"""Of the log of a seed that failed."""
STYLES: dict[SeedState, str] = {
    "waiting": "dim", "running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red",
}  # fmt: skip
LOGS = "logs"
FINAL = ("seed", "state", "final eval", "best eval", "steps", "steps/s", "time")


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
        raise ConfigError(f"{algo}: no such algorithm. {nearest_algorithm(algo)}")
    given, flags = parser.parse_known_args(list(argv[1:]))
    folder, seeds = _checked(given)
    jobs = [_job(algo, flags, folder, seed, resume=bool(given.resume)) for seed in seeds]
    config = _config(algo, jobs[0])
    if not (given.resume or config.run.overwrite) and (taken := [job for job in jobs if _begun(job.folder)]):
        raise ConfigError(
            f"output_dir {str(taken[0].folder)!r}: holds a run already. "
            "Choose another folder, go on with --resume, or replace the runs of these seeds with --overwrite."
        )
    cores, devices = allowed_cores(), _devices(given.devices, flags, config)
    at_once: int = len(devices or cores) if given.at_once is None else coerce(given.at_once, int, "at_once")
    check_range("at_once", at_once, "Leave it out for one per core, or per device.", at_least=1)
    at_once = min(at_once, len(jobs))
    runs = SeedRuns(jobs, make_slots(at_once, cores, devices))
    with _writable(folder):
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
    _run(runs)
    summary = ManySummary.of(jobs)
    _show(summary)
    _show_failures(jobs)
    about = {"algo": algo, "env": config.env_name, "at_once": at_once, "command": ["paceline", "train-many", *argv]}
    with _writable(folder):
        summary.write(folder, about)
    for name in (SUMMARY_JSON, SUMMARY_CSV):
        Console(highlight=False).print(f"written: {folder / name}", markup=False, soft_wrap=True)
    return runs.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline train-many",
        usage="paceline train-many ALGO --seeds SEEDS --output-dir DIR [OPTIONS OF train]",
        description="Train one agent per seed, several in parallel, each in its own process and folder. The CPU cores "
        "are divided among the runs in parallel. Every other flag is passed to `paceline train ALGO`.",
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", metavar="SEEDS", help="0..5 (both ends included), 0,3,7, or a mix of the two")
    parser.add_argument(
        "--output-dir", "--output_dir", metavar="DIR",
        help=f"output folder: runs in DIR/seed_N, their output in DIR/logs/seed_N.txt, statistics over all seeds in "
        f"{SUMMARY_JSON} and {SUMMARY_CSV}",
    )  # fmt: skip
    parser.add_argument(
        "--devices", metavar="A,B", help="devices to assign to parallel runs in turn, e.g. cuda:0,cuda:1"
    )
    parser.add_argument(
        "--at-once", "--at_once", metavar="N", help="number of runs in parallel (default: one per core, or per device)"
    )
    parser.add_argument(
        "--resume", nargs="?", const="true", metavar="",
        help="resume the seeds that have a run, start the others",
    )  # fmt: skip
    parser.add_argument("--seed", help=argparse.SUPPRESS)
    return parser


def _checked(given: argparse.Namespace) -> tuple[Path, tuple[int, ...]]:
    """The folder and the seeds."""
    if given.seed is not None:
        raise ConfigError(f"seed={given.seed}: train-many trains one agent for each of --seeds. Use paceline train.")
    if given.resume not in (None, "true"):
        raise ConfigError(f"resume={given.resume!r}: every seed goes on with its own run. Write --resume alone.")
    if given.seeds is None:
        raise ConfigError("seeds: must be named (nothing given). Use --seeds 0..5, or 0,3,7.")
    if not given.output_dir:
        raise ConfigError("output_dir: must be named (nothing given), for the runs of all seeds. Use --output-dir DIR.")
    return Path(given.output_dir), read_seeds(given.seeds)


def _job(algo: str, flags: Sequence[str], folder: Path, seed: int, *, resume: bool) -> SeedRun:
    own = folder / f"seed_{seed}"
    # -P: a module in the current folder must not take the place of one of ours or of Python's.
    program = (sys.executable, "-P", "-m", "paceline", "train", algo)
    ours = ("--seed", str(seed), "--output-dir", str(own), *(("--resume",) if resume and _begun(own) else ()))
    return SeedRun(seed=seed, folder=own, log=folder / LOGS / f"seed_{seed}.txt", command=(*program, *flags, *ours))


def _begun(folder: Path) -> bool:
    return (folder / COMMAND).is_file()


def _config(algo: str, job: SeedRun) -> TrainConfig:
    """What a job's command line means: what is wrong with it is said here, once."""
    words = job.command[job.command.index(algo) + 1 :]
    config, _ = parse(words, prog="paceline train-many", description="", algo=algo, extra=NoOptions)
    if config.run.checkpoint_dir is not None:
        raise ConfigError("checkpoint_dir: seeds cannot share one. Leave it out: each has its own in its run's folder.")
    return config


def _devices(text: str | None, flags: Sequence[str], config: TrainConfig) -> list[str]:
    """What --devices names."""
    devices = [] if text is None else [word.strip() for word in text.split(",")]
    if devices and any(word.partition("=")[0] == "--device" for word in flags):
        raise ConfigError("device and devices: one is for all seeds, the other dealt out to them. Give one of the two.")
    for device in devices:
        config.merge(device=device)  # refuses what is no device
    return devices


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """What cannot be written inside is the folder's fault."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"output_dir {str(folder)!r}: must be writable ({error.strerror or error}). Choose another folder."
        ) from error


def _run(runs: SeedRuns) -> None:
    """Run all of them, with a live line for each on a terminal, and a line for each change elsewhere."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        runs.run(_reporter(runs, console))
        return
    # Drawn by the loop that is there anyway: a process that starts others is better off without threads.
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
                told = f"{cores}{device}" if job.state == "running" else ""
                console.print(f"seed {job.seed}: {job.state}{told}", markup=False, soft_wrap=True)

    return watch


def live_table(jobs: Sequence[SeedRun]) -> Table:
    """A line for each seed: how long it has run, and what it said last."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("seed", "state", "time"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    table.add_column()  # what is too long is cut here, and nowhere else
    for job in jobs:
        running = job.state == "running"
        said = last_lines(job.log, 1) if running else []
        table.add_row(
            str(job.seed),
            Text(job.state, style=STYLES[job.state]),
            duration(job.running_s) if running else "",
            Text("".join(said), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _show(summary: ManySummary) -> None:
    console = Console(highlight=False)
    lines = [[str(row["seed"]), row["state"], *(_cell(name, row[name]) for name in NUMBERS)] for row in summary.rows]
    finished = sum(row["state"] == "finished" for row in summary.rows)
    over = ["mean ± std", plural(finished, "seed"), *(_spread(name, summary.over_seeds[name]) for name in NUMBERS)]
    if console.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in FINAL:
            table.add_column(column, justify="left" if column in ("seed", "state") else "right")
        for row, (seed, state, *cells) in zip(summary.rows, lines, strict=True):
            table.add_row(seed, Text(state, style=STYLES[row["state"]]), *cells)
        table.add_section()
        table.add_row(*over, style="bold")
        console.print(table)
    else:
        # Tabs, so that other programs can take it apart; rich would make spaces of them.
        sys.stdout.writelines("\t".join(line) + "\n" for line in [FINAL, *lines, over])


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
    """Why seeds failed, in their own words."""
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
