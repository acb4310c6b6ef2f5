"""What does the user of three libraries see after `kill -9` of a worker, or when an env hangs, and after how long?

    make bench-faults

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

import psutil

from benchmarks.faults import invariants
from benchmarks.harness import peer_venvs
from benchmarks.harness.paths import RESULTS, ROOT

LIMIT_S = 60.0
"""A program without a reaction after this time counts as hanging."""
REPLACED = "It is replaced"
"""Message in Paceline's log after the loss of a worker."""
NAMES = {
    "gymnasium": "Gymnasium AsyncVectorEnv",
    "sb3": "SB3 PPO on SubprocVecEnv",
    "paceline": "Paceline PPO, 2 workers",
}


def observe(library: str, python: str, fault: str) -> dict[str, Any]:
    """Start a library, inject the fault, and observe the output until the process ends or `LIMIT_S` has passed."""
    folder = Path(tempfile.mkdtemp(prefix="paceline-victim-"))
    request, log, token = folder / "request", (folder / "output").open("w+"), f"victim-{time.monotonic_ns()}"
    process = subprocess.Popen(
        [python, "-m", "benchmarks.faults.victims", library, str(request), str(folder / "run")],
        stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT,
        env={**os.environ, "PACELINE_VICTIM": token, "SPT_NOENV": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    output = folder / "output"
    while "READY" not in output.read_text():
        if process.poll() is not None:
            raise RuntimeError(output.read_text())
        time.sleep(0.05)
    workers = [one for one in psutil.Process(process.pid).children(recursive=True) if _steps_envs(one)]
    if fault == "kill":
        workers[0].send_signal(signal.SIGKILL)
    else:
        request.touch()
    began = perf_counter()
    train_log, logged_s = folder / "run" / "train.log", None
    while process.poll() is None and perf_counter() - began < LIMIT_S:
        if logged_s is None and train_log.exists() and REPLACED in train_log.read_text():
            logged_s = perf_counter() - began
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
    text = output.read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    if logged_s is not None:
        note = next(line for line in train_log.read_text().splitlines() if REPLACED in line)
        lines = [note.split("INFO", 1)[-1].strip(), lines[-1]]
    return {
        "library": NAMES[library],
        "fault": fault,
        "sees": " / ".join(lines[-2:] if logged_s is not None else lines[-1:]) if ended else "nothing: it hangs",
        "after_s": round(logged_s if logged_s is not None else seconds, 1) if ended else None,
        "goes_on": logged_s is not None,
        "exit_code": process.returncode if ended else None,
        "processes_left": len(left),
    }


def _steps_envs(process: psutil.Process) -> bool:
    """Whether a process steps envs, and is not a server of multiprocessing."""
    try:
        words = " ".join(process.cmdline())
        return "resource_tracker" not in words and not ("forkserver" in words and process.children())
    except psutil.Error:
        return False


def table(rows: list[dict[str, Any]], versions: dict[str, str]) -> str:
    """The result as markdown."""
    lines = [
        "# The same fault in three libraries", "",
        f"`make bench-faults`; {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        f"Observed for {LIMIT_S:g} s; Paceline with `--env-timeout-s 10` (its default is 60).", "",
        "| fault | library | what the user sees | after | training continues | processes left |",
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
    """Version of a package in the environment of an interpreter."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Inject both faults into all libraries and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter with stable-baselines3; by default one is built")
    given = parser.parse_args()
    sb3_python = given.sb3_python or str(peer_venvs.require("sb3"))
    pythons = {"gymnasium": sys.executable, "sb3": sb3_python, "paceline": sys.executable}
    rows = []
    for fault in ("kill", "hang"):
        for library, python in pythons.items():
            rows.append(observe(library, python, fault))
            print(rows[-1], flush=True)
    versions = {
        "gymnasium": version(sys.executable, "gymnasium"),
        "stable-baselines3": version(sb3_python, "stable-baselines3"),
        "paceline": version(sys.executable, "paceline"),
    }
    (RESULTS / "faults.json").write_text(json.dumps({"versions": versions, "rows": rows}, indent=2) + "\n")
    (RESULTS / "faults.md").write_text(table(rows, versions))


if __name__ == "__main__":
    main()
