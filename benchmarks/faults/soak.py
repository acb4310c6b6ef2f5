"""Do memory or the number of open files grow in a long training whose workers are killed every ten seconds?

    make soak MINUTES=30

Half of the time it trains with `ppo` (synchronous), half with `impala` (asynchronous). The first quarter of each half
is warm-up; of the rest, the last third is compared with the first.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from time import perf_counter

import psutil

from benchmarks.harness.paths import LOGS, RESULTS
from paceline.config.train_config import TrainConfig
from paceline.train.run import Run

MINUTES = 30.0
"""A shorter run is stored in .logs/ instead of results/."""
MAX_GROWTH_MB = 16.0
"""Growth that allocators and the time of sampling explain."""
MAX_FDS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory, open files and threads while all workers are alive."""

    at_s: float
    driver_mb: float
    tree_mb: float
    fds: int
    threads: int


def soak(algo: str, seconds: float, every_s: float) -> tuple[list[Sample], int, int]:
    """Train for `seconds` and kill a worker every `every_s`; returns samples, number of kills and of replacements."""
    config = TrainConfig.from_flat(
        algo=algo, env="CartPole-v1", n_envs=16, num_workers=2, n_steps=64, n_eval_episodes=0, quiet=True, seed=1,
        total_timesteps=10**12,
    )  # fmt: skip
    samples: list[Sample] = []
    stop, kills, began, me = threading.Event(), [0], perf_counter(), psutil.Process()

    def kill_workers(run: Run) -> None:
        while not stop.wait(every_s * 0.8):
            samples.append(
                Sample(
                    perf_counter() - began,
                    me.memory_full_info().uss / 2**20,
                    private_mb(me),
                    me.num_fds(),
                    me.num_threads(),
                )
            )
            if stop.wait(every_s * 0.2):
                return
            pid = run.training.runtime.pids()[kills[0] % 2]
            try:
                os.kill(pid, signal.SIGKILL)
                kills[0] += 1
            except ProcessLookupError:
                continue

    with Run(config) as run:
        thread = threading.Thread(target=kill_workers, args=(run,))
        thread.start()
        try:
            summary = run.go(seconds=seconds)
        finally:
            stop.set()
            thread.join()
    return samples, kills[0], summary.restarts


def private_mb(root: psutil.Process) -> float:
    """Private memory of a process and its descendants; shared memory depends on other users of the same libraries."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            total += process.memory_full_info().uss
    return total / 1e6


def growth(samples: list[Sample], field: str) -> float:
    """Median of the last third minus median of the first third, after the warm-up."""
    values = [float(getattr(sample, field)) for sample in samples[len(samples) // 4 :]]
    third = max(1, len(values) // 3)
    return statistics.median(values[-third:]) - statistics.median(values[:third])


def main() -> int:
    """Run both halves; returns 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between kills")
    given = parser.parse_args()
    result, bad = (
        {"command": f"python -m benchmarks.faults.soak --minutes {given.minutes:g} --every {given.every:g}"},
        [],
    )
    for algo in ("ppo", "impala"):
        samples, kills, restarts = soak(algo, 30 * given.minutes, given.every)
        grown = {field: round(growth(samples, field), 1) for field in ("driver_mb", "tree_mb", "fds", "threads")}
        fds = [sample.fds for sample in samples]
        print(
            f"{algo}: {kills} kills, {restarts} replacements; growth {grown}; open files {min(fds)} to {max(fds)}",
            flush=True,
        )
        for field, most in (
            ("driver_mb", MAX_GROWTH_MB),
            ("tree_mb", 2 * MAX_GROWTH_MB),
            ("fds", MAX_FDS),
            ("threads", 1),
        ):
            if grown[field] > most:
                bad.append(f"{algo}: {field} grew by {grown[field]} (at most {most})")
        if restarts < kills - 1:
            bad.append(f"{algo}: {kills} kills but {restarts} replacements")
        result[algo] = {
            "kills": kills,
            "replacements": restarts,
            "growth": grown,
            "samples": [asdict(one) for one in samples],
        }  # type: ignore[assignment]
    verdict = "flat" if not bad else "; ".join(bad)
    print(f"verdict: {verdict}")
    store = RESULTS if given.minutes >= MINUTES else LOGS
    store.mkdir(exist_ok=True)
    (store / "soak.json").write_text(json.dumps({**result, "verdict": verdict}, indent=2) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
