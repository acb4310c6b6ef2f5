"""Invariants that hold after any fault, checked from outside after a trainer process has ended."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import psutil

from paceline.errors import CheckpointError
from paceline.train import checkpoint

GRACE_S = 3.0
SHM = Path("/dev/shm")


def left_processes(token: str) -> list[str]:
    """Processes with `token` in their environment that are still alive after `GRACE_S`."""
    deadline = time.perf_counter() + GRACE_S
    while True:
        left = [process for process in psutil.process_iter(["pid", "status"]) if _has(process, token)]
        if not left or time.perf_counter() > deadline:
            return [f"process {process.pid} is left ({_title(process)})" for process in left]
        time.sleep(0.1)


def shm_entries() -> set[str]:
    """Names in /dev/shm."""
    return set(os.listdir(SHM)) if SHM.is_dir() else set()


def left_in_shm(before: set[str]) -> list[str]:
    """New entries in /dev/shm that no living process has mapped."""
    new = shm_entries() - before
    for process in psutil.process_iter():
        if not new:
            break
        try:
            new -= {Path(mapped.path).name for mapped in process.memory_maps() if mapped.path.startswith(f"{SHM}/")}
        except (psutil.Error, OSError):
            continue
    return [f"/dev/shm/{name} is left" for name in sorted(new)]


def checkpoints(run: Path) -> list[str]:
    """Checkpoints that neither load nor are refused with an error that names them."""
    broken = []
    for path in checkpoint.steps(run / "checkpoints"):
        try:
            checkpoint.load(path)
        except CheckpointError as error:
            if str(path) not in str(error):
                broken.append(f"{path.name}: the error does not name it ({error})")
        except Exception as error:
            broken.append(f"{path.name}: {type(error).__name__} ({error})")
    return broken


def counters(run: Path, *, whole: bool) -> list[str]:
    """Contradictions between progress.csv, episodes.csv, summary.json and the checkpoints of a run.

    Args:
        run: Folder of the run.
        whole: Whether the last process ended regularly and no write failed.
    """
    rows = table(run / "progress.csv")
    steps = [int(row["steps"]) for row in rows]
    # DQN in async mode may update without new steps, if each step is to be sampled many times.
    order = [(int(row["steps"]), int(row["iteration"])) for row in rows]
    broken = [] if order == sorted(set(order)) else ["progress.csv: steps do not increase"]
    episodes = table(run / "episodes.csv")
    # If the disk was full at the end, episodes.csv may have rows beyond the last row of progress.csv.
    known = [int(row["length"]) for row in episodes if steps and int(row["step"]) <= max(steps)]
    if sum(known) > max(steps, default=0):
        broken.append("episodes.csv: more steps than progress.csv")
    if whole:
        summary = read_summary(run)
        if not steps or summary["steps"] != steps[-1]:
            broken.append(f"summary.json says {summary['steps']} steps, progress.csv {steps[-1:]}")
        if summary["episodes"] != int(rows[-1]["episodes"]):
            broken.append(f"summary.json says {summary['episodes']} episodes, progress.csv {rows[-1]['episodes']}")
        if not 0 <= summary["dropped_steps"] <= summary["steps"]:
            broken.append(f"dropped_steps is {summary['dropped_steps']}")
        if not (run / "checkpoints" / checkpoint.step_name(summary["steps"])).is_dir():
            broken.append(f"no checkpoint of step {summary['steps']}")
    return broken


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file without an unfinished last line."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except OSError:
        return []
    return list(csv.DictReader(line for line in lines if line.endswith("\n")))


def read_summary(run: Path) -> dict[str, Any]:
    """Contents of summary.json."""
    content: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return content


def _has(process: psutil.Process, token: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return token.encode() in Path(f"/proc/{process.pid}/environ").read_bytes()
    except (psutil.Error, OSError):
        return False


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:80]
    except psutil.Error:
        return "?"
