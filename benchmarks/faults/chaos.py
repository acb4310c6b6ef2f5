"""Does training survive random faults in all modes? Inject faults by seed and check invariants.

    make chaos MINUTES=10 SEED=0

    session   one run of one mode, up to a fixed number of steps
      life    one trainer process of the run: killed, interrupted or finished; the next life resumes
        fault   an injected fault, about every half second

After each life and session the invariants are checked. In modes with exact recovery the final weights must equal those
of a run without faults.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.faults import invariants
from benchmarks.faults.injected import DISK_MB, ENDING, FAULTS, WITHOUT_WORKERS, send, small_disk
from benchmarks.faults.trainer_life import MODES, Life
from benchmarks.harness.paths import LOGS, RESULTS
from paceline.errors import CheckpointError
from paceline.train import checkpoint

MINUTES = 10.0
"""A shorter run is stored in .logs/ instead of results/."""
STALL_S = 60.0
"""Longest time without progress in a life; covers start-up, hang detection, and delays between replacements."""
EXACT = ("ppo", "thread per env", "pipeline", "dqn")
NOT_RECOVERED = ("started new episodes", "started a new episode")
"""Messages of the log if an env was not restored to its state; the weights may then differ."""


class Chaos:
    """Runs sessions, and collects counts of faults and violated invariants."""

    def __init__(self, folder: Path, seed: int, steps: int, pause_s: float) -> None:
        self._folder, self._chance, self._steps, self._pause_s = folder, random.Random(seed), steps, pause_s
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.sessions: Counter[str] = Counter()
        self.lives = self.compared = 0
        self._expected: dict[str, str] = {}
        self._shm = invariants.shm_entries()

    def session(self, mode: str, deadline: float) -> None:
        """One run of a mode, until it has finished or the deadline has passed."""
        name = f"{mode}-{self.sessions[mode]}"
        run, control = self._folder / name, self._folder / f"{name}-control"
        control.mkdir()
        resume: list[str] = []
        finished = False
        while not finished and perf_counter() < deadline:
            life = Life(mode, run, control, self._steps, resume)
            self.lives += 1
            stalled = self._inject(life, mode, deadline)
            life.end()
            for leftover in ("request", "slow"):
                (control / leftover).unlink(missing_ok=True)
            finished = self._check(life, name, stalled)
            resume = self._resume(run)
        self.broken += [f"{name}: {what}" for what in invariants.left_in_shm(self._shm)]
        self.sessions[mode] += 1
        if (
            finished
            and not life.disk
            and mode in EXACT
            and not any(words in (run / "train.log").read_text() for words in NOT_RECOVERED)
        ):
            self.compared += 1
            if invariants.read_summary(run)["weights_sha256"] != self.expected(mode):
                self.broken.append(f"{name}: weights differ from those of a run without faults")

    def expected(self, mode: str) -> str:
        """Hash of the weights of a run without faults."""
        if mode not in self._expected:
            run, control = self._folder / f"{mode}-expected", self._folder / f"{mode}-expected-control"
            control.mkdir()
            life = Life(mode, run, control, self._steps, [])
            if life.process.wait(600):
                raise RuntimeError(life.output())
            self._expected[mode] = invariants.read_summary(run)["weights_sha256"]
        return self._expected[mode]

    def _inject(self, life: Life, mode: str, deadline: float) -> bool:
        """Inject faults until the life ends; returns True if it made no progress for `STALL_S`."""
        moved, steps, begun = perf_counter(), -1, life.steps()
        names = [name for name in FAULTS if mode != "sequential" or name in WITHOUT_WORKERS]
        weights = [FAULTS[name][0] for name in names]
        while life.process.poll() is None:
            if (now := life.steps()) != steps:
                moved, steps = perf_counter(), now
            if perf_counter() - moved > STALL_S:
                return True
            if perf_counter() > deadline:
                send(life.process.pid, signal.SIGTERM)
                deadline = float("inf")
            time.sleep(self._pause_s * self._chance.uniform(0.3, 1.7))
            if steps > begun and deadline < float("inf"):
                name = self._chance.choices(names, weights)[0]
                if FAULTS[name][1](life, self._chance):
                    self.counts[name] += 1
                    if name in ENDING:
                        deadline = float("inf")
        return False

    def _check(self, life: Life, name: str, stalled: bool) -> bool:
        """Check the invariants after a life; returns whether the run has finished."""
        found = [f"no progress for {STALL_S:g} s"] if stalled else []
        code, output = life.process.returncode, life.output()
        # A signal during start-up, before the handlers are installed, ends the process at once.
        if code not in (0, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT) and not (
            code in (1, 2) and "error: " in output
        ):
            found.append(f"exit code {code}: {output[-2000:]}")
        if code == 1 and not (life.disk and "could not be written" in output):
            found.append(f"the run gave up: {output[-2000:]}")
        if "Traceback" in output.replace("Its traceback:\nTraceback", ""):
            found.append(f"a traceback: {output[-2000:]}")
        found += invariants.left_processes(life.token)
        found += invariants.checkpoints(life.run)
        found += invariants.counters(life.run, whole=code in (0, 130, 143) and not life.disk)
        self.broken += [f"{name}: {what}" for what in found]
        return bool(code == 0)

    def _resume(self, run: Path) -> list[str]:
        """Flags for the next life. Sometimes damages a checkpoint: the error must name it and offer an older one."""
        steps = checkpoint.steps(run / "checkpoints")
        if not steps:
            return ["--overwrite"] if run.exists() else []
        if len(steps) > 1 and self._chance.random() < 0.4:
            self._damage(steps[-1])
            self.counts["damaged checkpoint"] += 1
            try:
                checkpoint.find(run)
                self.broken.append(f"{run.name}: a damaged checkpoint was accepted")
            except CheckpointError as error:
                offered = str(error).rsplit("--resume ", 1)[-1]
                if str(steps[-1]) not in str(error) or not Path(offered).is_dir():
                    self.broken.append(
                        f"{run.name}: the error about a damaged checkpoint names no file or offers no other: {error}"
                    )
                return ["--resume", offered]
        return ["--resume"]

    def _damage(self, path: Path) -> None:
        file = path / self._chance.choice([checkpoint.STATE, checkpoint.MANIFEST])
        content = bytearray(file.read_bytes())
        match self._chance.choice(["cut", "flip", "remove"]):
            case "cut":
                file.write_bytes(content[: self._chance.randrange(len(content))])
            case "flip" if file.name == checkpoint.STATE:
                content[self._chance.randrange(len(content))] ^= 1 << self._chance.randrange(8)
                file.write_bytes(content)
            case _:
                file.unlink()

    def learns(self) -> float:
        """Resume a run without faults; returns the mean return of its last 100 episodes."""
        name = next(f"ppo-{number}" for number in reversed(range(self.sessions["ppo"])))
        run, control = self._folder / name, self._folder / f"{name}-control"
        target = invariants.table(run / "progress.csv")
        life = Life("ppo", run, control, int(target[-1]["steps"]) + 60_000, self._resume_undamaged(run))
        code = life.process.wait(900)
        if code:
            self.broken.append(f"{name}: the last run ended with {code}: {life.output()[-2000:]}")
            return 0.0
        mean = float(invariants.table(run / "progress.csv")[-1]["rollout/ep_rew_mean"])
        if mean < 100.0:
            self.broken.append(f"{name}: the last run has learned nothing (mean return {mean:.0f})")
        return mean

    def _resume_undamaged(self, run: Path) -> list[str]:
        try:
            checkpoint.find(run)
        except CheckpointError as error:
            return ["--resume", str(error).rsplit("--resume ", 1)[-1]]
        return ["--resume"]


def main() -> int:
    """Run sessions until time is up; returns 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40_000, help="steps of a session")
    parser.add_argument("--pause", type=float, default=0.4, help="mean seconds between faults")
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--keep", action="store_true", help="keep the runs")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="paceline-chaos-"))
    own_disk = small_disk(folder)
    chaos = Chaos(folder, given.seed, given.steps, given.pause)
    began = perf_counter()
    deadline, turn, reported = began + 60 * given.minutes, 0, 0
    while perf_counter() < deadline:
        mode = given.modes[turn % len(given.modes)]
        # Divide the time among the modes, so that every mode runs on a slow machine, too.
        chaos.session(mode, min(deadline, perf_counter() + 60 * given.minutes / len(given.modes)))
        total = sum(chaos.counts.values())
        print(
            f"{perf_counter() - began:6.0f} s  {mode:<10} {total:4} faults, {len(chaos.broken)} violations", flush=True
        )
        for what in chaos.broken[reported:]:
            print(f"VIOLATED  {what}", flush=True)
        reported = len(chaos.broken)
        turn += 1
    mean = chaos.learns() if chaos.sessions["ppo"] else None
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.faults.chaos --minutes {given.minutes:g} --seed {given.seed}",
        "full_disks": f"a tmpfs of {DISK_MB} MB" if own_disk else "RLIMIT_FSIZE",
        "minutes": round((perf_counter() - began) / 60, 1),
        "faults": sum(chaos.counts.values()),
        "by_kind": dict(chaos.counts.most_common()),
        "sessions": dict(chaos.sessions),
        "lives": chaos.lives,
        "equal_to_undisturbed": chaos.compared,
        "mean_return_after": mean,
        "broken": chaos.broken,
    }
    for name, count in chaos.counts.most_common():
        print(f"{count:5}  {name}")
    print(f"{result['faults']} faults in {result['lives']} lives of {sum(chaos.sessions.values())} runs")
    print(
        f"{chaos.compared} runs ended with the weights of a run without faults; mean return after a last resume: {mean}"
    )
    print(f"violated invariants: {len(chaos.broken)}")
    for what in chaos.broken[reported:]:
        print(f"VIOLATED  {what}")
    store = RESULTS if given.minutes >= MINUTES else LOGS
    store.mkdir(exist_ok=True)
    (store / "chaos.json").write_text(json.dumps(result, indent=2) + "\n")
    if given.keep or chaos.broken:
        print(f"runs are kept in {folder}")
    else:
        if own_disk:
            subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if chaos.broken else 0


if __name__ == "__main__":
    sys.exit(main())
