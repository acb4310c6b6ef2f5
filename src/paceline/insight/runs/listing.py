"""Finds the runs under a folder and summarises each, for `paceline ls`.

Reads only the ends of files, so that listing hundreds of long runs is fast.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from paceline.insight.runs.columns import read_mapping, section_of, typed
from paceline.measure.folder import CONFIG, LAYOUT, MARKS, PROGRESS, SUMMARY, TRAIN_LOG
from paceline.measure.speed import fps_of, per_second
from paceline.measure.train_log import being_written

RunState = Literal["running", "finished", "unfinished", "damaged"]

DEPTH = 4
"""Depth below the folder to which runs are searched."""
TAIL = 1 << 16
"""Bytes read from the end of progress.csv; a row has a few hundred."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """Summary of one run. None: the run folder does not have this value."""

    path: Path
    state: RunState
    remark: str = ""
    """Why the run stopped, or what is damaged."""
    algo: str | None = None
    env: str | None = None
    num_workers: int | None = None
    steps: int | None = None
    score: float | None = None
    """Mean return of the last evaluation, or else of the last 100 training episodes."""
    evaluated: bool = False
    """Whether the score is an evaluation's."""
    fps: float | None = None
    age_s: float = 0.0
    """Seconds since the last write to the run folder."""


def find_runs(folder: Path) -> list[Path]:
    """The run folders at or under `folder`, sorted by path."""
    return sorted(_runs(folder, DEPTH))


def listed(path: Path) -> Listed:
    """Summarise one run. Never raises because of damaged files; the state is then "damaged"."""
    running = being_written(path / TRAIN_LOG)
    age_s = _age_s(path)
    row = _last_row(path / PROGRESS)
    known = _names(path)
    steps = row.get("steps")
    counted_s = row.get("time/training_s", row.get("time/time_elapsed"))  # earlier versions recorded only the second
    known |= {
        "steps": None if steps is None else int(steps),
        "fps": per_second(steps, counted_s) if steps is not None and counted_s else None,
        "score": row.get("rollout/ep_rew_mean"),
    }
    if running or not (path / SUMMARY).exists():
        # The summary of a run that is being written comes from an earlier session, before a resume.
        return Listed(path=path, state="running" if running else "unfinished", age_s=age_s, **known)
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        known |= {name: summary[name] for name in ("algo", "env", "num_workers", "steps", "fps")}
        for name, kind in (("steps", int), ("fps", (int, float)), ("env", str), ("algo", str)):
            if not isinstance(known[name], kind):
                raise ValueError(f"{name} is {known[name]!r}")
        known["fps"] = fps_of(summary)
        finished, reason = summary["finished"] is True, str(summary["stop_reason"])
        if summary.get("final_eval"):
            known |= {"score": float(summary["final_eval"]["mean_reward"]), "evaluated": True}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Listed(path=path, state="damaged", remark=f"{SUMMARY}: {error}", age_s=age_s)
    return Listed(path=path, state="finished" if finished else "unfinished", remark=reason, age_s=age_s, **known)


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in MARKS):
        yield folder
        return
    if depth == 0:
        return
    try:
        inner = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for each in inner:
        if not each.name.startswith("."):
            yield from _runs(each, depth - 1)


def _last_row(path: Path) -> dict[str, float]:
    """The last complete row of progress.csv; empty if there is none."""
    try:
        with open(path, "rb") as file:
            names = file.readline().decode().strip().split(",")
            start = file.tell()
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - TAIL))
            lines = file.read().decode(errors="replace")
    except (OSError, UnicodeDecodeError):
        return {}
    whole = lines[: lines.rfind("\n") + 1].splitlines()
    if not whole:
        return {}
    cells = whole[-1].split(",")
    try:
        return {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}
    except ValueError:
        return {}


def _names(path: Path) -> dict[str, Any]:
    """Algorithm, env and number of workers from the files that a run writes at its start."""
    config = read_mapping(path / CONFIG)
    return {
        "algo": typed(str, section_of(config, "run").get("algo")),
        "env": typed(str, section_of(config, "env").get("env")),
        "num_workers": typed(int, read_mapping(path / LAYOUT).get("num_workers")),
    }


def _age_s(path: Path) -> float:
    stamps = []
    for name in (SUMMARY, PROGRESS, TRAIN_LOG, *MARKS):
        try:
            stamps.append((path / name).stat().st_mtime)
        except OSError:
            continue
    now = datetime.now().timestamp()
    return max(0.0, now - max(stamps, default=now))  # never negative, also if the clock was set back
