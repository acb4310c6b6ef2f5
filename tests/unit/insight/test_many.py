from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.unit.insight.runs.run_folders import summarised

from paceline import PPO
from paceline.errors import ConfigError
from paceline.insight.many import (
    COLUMNS,
    ManySummary,
    SeedRun,
    SeedRuns,
    Slot,
    Spread,
    last_lines,
    launched,
    make_slots,
    read_seeds,
)
from paceline.measure.record import EvaluationRow
from paceline.system.limits import affinity, allowed_cores

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0

PATIENT = """
import pathlib, signal, sys, time
def stop(number, frame):
    print("told", number, flush=True)
    sys.exit(128 + number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
"""A run that continues until it gets a signal; creates a file when its handler is installed."""

STUBBORN = PATIENT.replace("    sys.exit(128 + number)\n", "")


def job(folder: Path, seed: int, code: str, *words: object) -> SeedRun:
    return SeedRun(
        seed=seed,
        folder=folder / f"seed_{seed}",
        log=folder / "logs" / f"seed_{seed}.txt",
        command=(sys.executable, "-c", code, *map(str, words)),
    )


def anywhere(n: int) -> list[Slot]:
    return [Slot(())] * n


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.perf_counter() + WAIT_S
    while not true():
        assert time.perf_counter() < deadline
        time.sleep(0.02)


def test_every_job_runs_in_a_free_slot_and_its_output_is_logged(tmp_path: Path) -> None:
    code = "import os, sys; print('seed', sys.argv[1], *sorted(os.sched_getaffinity(0)), *sys.argv[2:])"
    jobs = [job(tmp_path, seed, code, seed) for seed in range(5)]
    core = affinity()[-1]
    most = 0

    def watch() -> None:
        nonlocal most
        most = max(most, sum(one.state == "running" for one in jobs))

    runs = SeedRuns(jobs, [Slot((core,), "cpu"), Slot((core,), "mps")])
    runs.run(watch)
    assert (most, runs.exit_code) == (2, 0)
    assert [(one.state, one.exit_code) for one in jobs] == [("finished", 0)] * 5
    for one in jobs:
        assert one.slot is not None
        assert one.log.read_text() == f"seed {one.seed} {core} --device {one.slot.device}\n"


def test_other_seeds_finish_after_one_fails(tmp_path: Path) -> None:
    codes = ["", "print('first line')\nraise SystemExit('last words')", "import os; os.kill(os.getpid(), 9)", ""]
    jobs = [job(tmp_path, seed, code) for seed, code in enumerate(codes)]
    runs = SeedRuns(jobs, anywhere(2))
    runs.run(lambda: None)
    assert [one.state for one in jobs] == ["finished", "failed", "failed", "finished"]
    assert [one.exit_code for one in jobs] == [0, 1, -9, 0]
    assert last_lines(jobs[1].log, 5) == ["first line", "last words"]
    assert runs.exit_code == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_forwarded_once_and_no_further_seed_is_started(number: signal.Signals, tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed, PATIENT, tmp_path / f"listens_{seed}") for seed in range(3)]
    runs = SeedRuns(jobs, anywhere(2))
    sent = False

    def watch() -> None:
        nonlocal sent
        if not sent and all((tmp_path / f"listens_{seed}").exists() for seed in (0, 1)):
            sent = True
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    runs.run(watch)
    assert signal.getsignal(number) is before
    assert [one.state for one in jobs] == ["stopped", "stopped", "waiting"]
    assert [one.log.read_text() for one in jobs[:2]] == [f"told {number.value}\n"] * 2
    assert not jobs[2].log.exists()
    assert runs.exit_code == 128 + number


def test_the_second_and_third_signals_are_forwarded_and_kill(tmp_path: Path) -> None:
    one = job(tmp_path, 0, STUBBORN, tmp_path / "listens")
    runs = SeedRuns([one], anywhere(1))

    def watch() -> None:
        log_lines = len(last_lines(one.log, 10))
        if (tmp_path / "listens").exists() and len(runs.signals) == log_lines:
            runs.signals.append(signal.SIGTERM)

    runs.run(watch)
    assert last_lines(one.log, 10) == ["told 15", "told 15"]
    assert (one.state, one.exit_code, runs.exit_code) == ("failed", -signal.SIGKILL, 143)


def test_a_run_killed_before_it_installed_its_handler_counts_as_stopped(tmp_path: Path) -> None:
    one = job(tmp_path, 0, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    runs = SeedRuns([one], anywhere(1))
    runs.run(lambda: None)
    assert (one.state, one.exit_code, runs.exit_code) == ("stopped", -signal.SIGTERM, 1)


def test_children_are_not_in_our_process_group(tmp_path: Path) -> None:
    one = job(tmp_path, 0, "import os; print(os.getpgrp() == os.getpid())")
    SeedRuns([one], anywhere(1)).run(lambda: None)
    assert one.log.read_text() == "True\n"


def test_an_error_in_watch_leaves_no_process_behind(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed, PATIENT, tmp_path / f"listens_{seed}") for seed in range(2)]

    def watch() -> None:
        if (tmp_path / "listens_0").exists():
            raise RuntimeError("screen gone")

    with pytest.raises(RuntimeError, match="screen gone"):
        SeedRuns(jobs, anywhere(2)).run(watch)
    assert all(one.process is not None and one.process.returncode is not None for one in jobs)


def test_other_threads_can_run_a_fleet(tmp_path: Path) -> None:
    one = job(tmp_path, 0, "print('fine')")
    thread = threading.Thread(target=SeedRuns([one], anywhere(1)).run, args=(lambda: None,))
    thread.start()
    thread.join(WAIT_S)
    assert one.state == "finished"


KILLED = """
import sys
from pathlib import Path
from paceline.insight.many import SeedRuns, SeedRun, Slot
folder = Path(sys.argv[1])
one = SeedRun(seed=0, folder=folder, log=folder / "log.txt", command=tuple(sys.argv[2:]))
SeedRuns([one], [Slot(())]).run(lambda: (folder / "pid").write_text(str(one.process.pid)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties them on Linux only")
def test_children_get_sigterm_when_the_command_is_killed(tmp_path: Path) -> None:
    words = [str(tmp_path), sys.executable, "-c", PATIENT, str(tmp_path / "listens")]
    parent = subprocess.Popen([sys.executable, "-c", KILLED, *words])
    try:
        pid = tmp_path / "pid"
        wait_until(lambda: (tmp_path / "listens").exists() and pid.exists() and pid.read_text())
        child = psutil.Process(int(pid.read_text()))
    finally:
        parent.kill()
        parent.wait()
    psutil.wait_procs([child], timeout=WAIT_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert (tmp_path / "log.txt").read_text() == "told 15\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties them on Linux only")
def test_a_child_started_after_the_parents_death_does_not_run(tmp_path: Path) -> None:
    command = launched([sys.executable, "-c", "print('ran')"], ())
    command[command.index(str(os.getpid()))] = "1"  # not our parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_seeds() -> None:
    assert read_seeds("0..5") == (0, 1, 2, 3, 4, 5)
    assert read_seeds("0,3,7") == (0, 3, 7)
    assert read_seeds("4") == (4,)
    assert read_seeds("0..2, 10") == (0, 1, 2, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be non-negative integers"),
        ("a", "'a' is not"),
        ("5..0", "'5..0' is not"),
        ("-1", "'-1' is not"),
        ("0..", "'0..' is not"),
        ("0...3", "'0...3' is not"),
        ("0..1000000", "at most 1000"),
        ("99999999999999999999", "must be non-negative integers"),
        ("1,0..2", "names a seed twice"),
    ],
)
def test_invalid_seeds_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_seeds(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("at_once", "cores", "shares"),
    [
        (1, [0, 1, 2], [(0, 1, 2)]),
        (2, [0, 1, 2, 3], [(0, 1), (2, 3)]),
        (3, [4, 5, 6, 7], [(4,), (5,), (6, 7)]),
        (3, [2, 3], [(2,), (3,), (2,)]),
        (2, [7], [(7,), (7,)]),
    ],
)
def test_cores_are_divided_among_slots(at_once: int, cores: list[int], shares: list[tuple[int, ...]]) -> None:
    slots = make_slots(at_once, cores, ["cuda:0", "cuda:1"])
    assert [slot.device for slot in slots] == ["cuda:0", "cuda:1", "cuda:0"][:at_once]
    assert [slot.cores for slot in slots] == shares
    assert {slot.device for slot in make_slots(at_once, cores)} == {None}


def test_last_lines_of_long_and_of_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    assert last_lines(path, 3) == []
    path.write_bytes(b"\xff" * 50_000 + b"\n\n one\n\ntwo  \n")
    assert last_lines(path, 2) == [" one", "two"]


def ended(folder: Path, seed: int, state: Any = "finished", **summary: Any) -> SeedRun:
    one = job(folder, seed, "")
    one.state, one.exit_code, one.slot = state, 0, Slot((0, 1), "cpu")
    if summary:
        summarised(one.folder, **summary)
    return one


def test_the_statistics_are_over_finished_seeds_only(tmp_path: Path) -> None:
    jobs = [
        ended(
            tmp_path, 0, final_eval=EvaluationRow(480.0, 1.0), best_eval=EvaluationRow(500.0, 1.0), steps=100, fps=10.0
        ),
        ended(
            tmp_path, 1, final_eval=EvaluationRow(460.0, 1.0), best_eval=EvaluationRow(490.0, 1.0), steps=100, fps=30.0
        ),
        ended(tmp_path, 2, "stopped", final_eval=EvaluationRow(1.0, 1.0), steps=7),
        ended(tmp_path, 3, "failed", steps=9),
        ended(tmp_path, 4, "stopped"),
    ]
    summary = ManySummary.of(jobs)
    assert [row["final_eval"] for row in summary.rows] == [480.0, 460.0, 1.0, None, None]
    assert [row["steps"] for row in summary.rows] == [100, 100, 7, None, None]
    spread = summary.over_seeds["final_eval"]
    assert spread is not None
    assert (spread.mean, spread.n) == (470.0, 2)
    assert spread.std == pytest.approx(200**0.5)  # n - 1
    summary.write(tmp_path, {"algo": "ppo"})
    content = json.loads((tmp_path / "seeds.json").read_text())
    assert content["algo"] == "ppo"
    assert content["over_seeds"]["fps"] == {"mean": 20.0, "std": pytest.approx(200**0.5), "n": 2}
    assert [row["state"] for row in content["seeds"]] == ["finished", "finished", "stopped", "failed", "stopped"]
    rows = list(csv.DictReader((tmp_path / "seeds.csv").read_text().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["seed"], rows[0]["final_eval"], rows[0]["cores"], rows[3]["steps"]) == ("0", "480.0", "0 1", "")


def test_spread_of_one_and_of_none() -> None:
    assert Spread.of([]) is None
    assert Spread.of([3.0]) == Spread(3.0, None, 1)


def test_two_real_seeds(tmp_path: Path) -> None:
    """Each run has its seed and cores and equals a separate `paceline train`."""
    small: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden_sizes": 4, "num_workers": 0, "n_eval_episodes": 1}
    flags = ["--env", "CartPole-v1", "--total-timesteps", "64", "--quiet"]
    flags += [word for name, value in small.items() for word in (f"--{name}", str(value))]
    jobs = []
    for seed in (3, 8):
        folder = tmp_path / f"seed_{seed}"
        ours = ["--seed", str(seed), "--output-dir", str(folder)]
        command = (sys.executable, "-m", "paceline", "train", "ppo", *flags, *ours)
        jobs.append(SeedRun(seed=seed, folder=folder, log=tmp_path / f"{seed}.txt", command=command))
    runs = SeedRuns(jobs, make_slots(2, allowed_cores()))
    runs.run(lambda: None)
    assert runs.exit_code == 0, [last_lines(one.log, 20) for one in jobs]
    rows = ManySummary.of(jobs).rows
    assert [(row["seed"], row["state"], row["steps"]) for row in rows] == [(3, "finished", 64), (8, "finished", 64)]
    assert all(row["final_eval"] is not None and row["fps"] > 0 for row in rows)
    summaries = [json.loads((one.folder / "summary.json").read_text()) for one in jobs]
    assert [one["seed"] for one in summaries] == [3, 8]
    with PPO("CartPole-v1", **small, seed=3) as alone:
        alone.learn(64)
    assert alone.summary is not None
    assert [one["weights_sha256"] == alone.summary.weights_sha256 for one in summaries] == [True, False]
