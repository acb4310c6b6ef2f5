"""One trainer process of a chaos run: how it is started in each mode, and what can be seen of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.faults import invariants
from benchmarks.harness.paths import ROOT

COMMON = (
    "--env", "benchmarks.faults.chaos_env:ChaosEnv", "--env-threads", "1",
    "--n-envs", "8", "--group-size", "2", "--num-workers", "2",
    "--seed", "3", "--env-timeout-s", "4", "--start-timeout-s", "30", "--max-restarts", "30", "--n-eval-episodes", "0",
    "--save-freq", "4000", "--keep-checkpoints", "4", "--native-vector", "never", "--quiet",
)  # fmt: skip
MODES: dict[str, tuple[str, ...]] = {
    "ppo": ("ppo", "--n-steps", "64", "--n-epochs", "6", "--batch-size", "128"),
    "thread per env": ("ppo", "--n-steps", "64", "--n-epochs", "6", "--batch-size", "128", "--env-threads", "auto"),
    "pipeline": ("ppo", "--pipeline", "--n-steps", "64", "--n-epochs", "6", "--batch-size", "128"),
    "impala": ("impala", "--n-steps", "32"),
    "a3c": ("a3c", "--n-steps", "16"),
    "dqn": ("dqn", "--learning-starts", "500", "--buffer-size", "20000"),
    "dqn-async": ("dqn", "--schedule", "async", "--learning-starts", "500", "--buffer-size", "20000"),
    "sequential": ("ppo", "--num-workers", "0", "--n-steps", "64", "--n-epochs", "6", "--batch-size", "128"),
}
WAIT_MS = {"thread per env": 0.5}
"""Milliseconds that a step sleeps, so that each env gets a thread of its own."""


class Life:
    """One trainer process of a run."""

    def __init__(self, mode: str, run: Path, control: Path, steps: int, resume: list[str]) -> None:
        self.token = f"chaos-{os.getpid()}-{time.monotonic_ns()}"
        algo, *rest = MODES[mode]
        flags = [
            *COMMON,
            "--env-kwargs",
            f"control={control}",
            f"wait_ms={WAIT_MS.get(mode, 0.0)}",
            *rest,
            "--total-timesteps",
            str(steps),
        ]
        command = [sys.executable, "-m", "benchmarks.faults.chaos_trainer", str(control), "train", algo]
        environment = {**os.environ, "PACELINE_CHAOS": self.token, "SPT_NOENV": "1"}
        self.process = subprocess.Popen(
            [*command, *flags, "--output-dir", str(run), *resume],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self.run, self.control, self.disk = run, control, False
        self._output: str | None = None

    def workers(self) -> list[int]:
        """Pids of its worker processes."""
        try:
            family = psutil.Process(self.process.pid).children(recursive=True)
            return [one.pid for one in family if "paceline: worker" in " ".join(one.cmdline())]
        except psutil.Error:
            return []

    def steps(self) -> int:
        """Steps of the run so far."""
        rows = invariants.table(self.run / "progress.csv")
        return int(rows[-1]["steps"]) if rows else 0

    def output(self) -> str:
        """Everything that it printed; blocks until the process has ended. A quiet run prints less than a pipe holds."""
        if self._output is None:
            self._output = self.process.communicate()[0]
        return self._output

    def end(self) -> None:
        """Kill the process if it is still alive, and wait for it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
