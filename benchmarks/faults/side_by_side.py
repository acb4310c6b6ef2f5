"""The same `kill -9` of a worker, and the same env that hangs, in three libraries: what their user sees, and when.

    python benchmarks/faults/side_by_side.py --sb3-python PYTHON

Writes benchmarks/results/faults.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter
from typing import Any

import invariants
import psutil

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
LIMIT_S = 60.0
"""How long somebody may look at a program that does nothing."""
NAMES = {
    "gymnasium": "Gymnasium AsyncVectorEnv",
    "sb3": "SB3 PPO on SubprocVecEnv",
    "paceline": "Paceline PPO, 2 workers",
}


def try_it(library: str, python: str, fault: str) -> dict[str, Any]:
    """Start it, do it, and watch."""
    folder = Path(tempfile.mkdtemp(prefix="paceline-victim-"))
    order, log, token = folder / "order", (folder / "said").open("w+"), f"victim-{time.monotonic_ns()}"
    process = subprocess.Popen(
        [python, str(HERE / "victims.py"), library, str(order), str(folder / "run")],
        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, "PACELINE_VICTIM": token, "SPT_NOENV": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    said = folder / "said"
    while "READY" not in said.read_text():
        if process.poll() is not None:
            raise RuntimeError(said.read_text())
        time.sleep(0.05)
    workers = [one for one in psutil.Process(process.pid).children(recursive=True) if _works(one)]
    if fault == "kill":
        workers[0].send_signal(signal.SIGKILL)
    else:
        order.touch()
    began = perf_counter()
    train_log, told_s = folder / "run" / "train.log", None
    while process.poll() is None and perf_counter() - began < LIMIT_S:
        if told_s is None and train_log.exists() and "It is replaced" in train_log.read_text():
            told_s = perf_counter() - began
        time.sleep(0.05)
    seconds, ended = perf_counter() - began, process.poll() is not None
    if not ended:
        process.kill()
    process.wait()
    time.sleep(2.0)
    left = invariants.left_processes(token)
    for one in psutil.process_iter():
        if invariants._has(one, token):
            one.kill()
    text = said.read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    if told_s is not None:
        note = next(line for line in train_log.read_text().splitlines() if "It is replaced" in line)
        lines = [note.split("INFO", 1)[-1].strip(), lines[-1]]
    return {
        "library": NAMES[library],
        "fault": fault,
        "sees": " / ".join(lines[-2:] if told_s is not None else lines[-1:]) if ended else "nothing: it hangs",
        "after_s": round(told_s if told_s is not None else seconds, 1) if ended else None,
        "goes_on": told_s is not None,
        "exit_code": process.returncode if ended else None,
        "processes_left": len(left),
    }


def _works(process: psutil.Process) -> bool:
    """A process that steps envs: not a server of multiprocessing."""
    try:
        words = " ".join(process.cmdline())
        return "resource_tracker" not in words and not ("forkserver" in words and process.children())
    except psutil.Error:
        return False


def table(rows: list[dict[str, Any]], versions: dict[str, str]) -> str:
    """As markdown."""
    lines = [
        "# The same fault in three libraries", "",
        f"`make bench-faults`; {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        f"Watched for {LIMIT_S:g} s; Paceline with `--env-timeout-s 10` (its default is 60).", "",
        "| fault | library | what the user sees | after | training goes on | processes left |",
        "|---|---|---|--:|---|--:|",
    ]  # fmt: skip
    words = {"kill": "`kill -9` of a worker", "hang": "`step` hangs in one env"}
    for row in rows:
        after = "never" if row["after_s"] is None else f"{row['after_s']:g} s"
        sees = row["sees"].replace("|", "\\|")[:400]
        lines.append(
            f"| {words[row['fault']]} | {row['library']} | {sees} | {after} | {'yes' if row['goes_on'] else 'no'} "
            f"| {row['processes_left']} |"
        )
    return "\n".join(lines) + "\n"


def version(python: str, package: str) -> str:
    """Of a package in an environment."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sb3-python", default=sys.executable, help="python of an environment with stable-baselines3")
    given = parser.parse_args()
    pythons = {"gymnasium": sys.executable, "sb3": given.sb3_python, "paceline": sys.executable}
    rows = []
    for fault in ("kill", "hang"):
        for library, python in pythons.items():
            rows.append(try_it(library, python, fault))
            print(rows[-1], flush=True)
    versions = {
        "gymnasium": version(sys.executable, "gymnasium"),
        "stable-baselines3": version(given.sb3_python, "stable-baselines3"),
        "paceline": version(sys.executable, "paceline"),
    }
    (RESULTS / "faults.json").write_text(json.dumps({"versions": versions, "rows": rows}, indent=2) + "\n")
    (RESULTS / "faults.md").write_text(table(rows, versions))


if __name__ == "__main__":
    main()
