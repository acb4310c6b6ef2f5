from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from paceline import cli
from paceline.cli import train_many
from paceline.insight.many import SeedRun, SeedRuns, SeedState
from paceline.train import checkpoint

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0

STAND_IN = """
import pathlib, sys
from tests.unit.insight.runs.run_folders import summarised
from paceline.measure.record import EvaluationRow
words = sys.argv[1:]
seed, folder = int(words[words.index("--seed") + 1]), pathlib.Path(words[words.index("--output-dir") + 1])
print("asked:", *words)
if seed == 13:
    sys.exit("error: seed 13 brings bad luck.")
summarised(folder, seed=seed, final_eval=EvaluationRow(100.0 + seed, 1.0))
"""
"""Program that replaces a training: writes the folder of a finished run, or fails for seed 13."""


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Makes the command start `STAND_IN` instead of trainings; returns a folder for its runs."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr("paceline.insight.many.launched", lambda command, _: [sys.executable, "-c", STAND_IN, *command])
    return tmp_path / "many"


def run(folder: Path, *words: str) -> int:
    return cli.main(["train-many", "ppo", "--env", "CartPole-v1", "--output-dir", str(folder), *words])


def asked(folder: Path, seed: int) -> list[str]:
    """The arguments of a seed's child, from the algorithm on."""
    words = shlex.split((folder / "logs" / f"seed_{seed}.txt").read_text().splitlines()[0])
    return words[words.index("train") + 1 :]


def test_every_seed_is_run_and_the_table_has_statistics_over_them(
    stand_ins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(stand_ins, "--seeds", "0..1,5", "--n-envs", "16", "--hidden_sizes", "8", "8", "--at_once", "2") == 0
    for seed in (0, 1, 5):
        assert asked(stand_ins, seed) == [
            "ppo", "--env", "CartPole-v1", "--n-envs", "16", "--hidden_sizes", "8", "8",
            "--seed", str(seed), "--output-dir", str(stand_ins / f"seed_{seed}"),
        ]  # fmt: skip
    said = capsys.readouterr()
    head, *rows = [line.split("\t") for line in said.out.splitlines()[:5]]
    assert tuple(head) == train_many.TABLE_COLUMNS
    assert [row[:3] for row in rows[:3]] == [[str(n), "finished", f"{100 + n}.0"] for n in (0, 1, 5)]
    assert rows[3] == [
        "mean ± std",
        "3 seeds",
        "102.0 ± 2.65",
        "500.0 ± 0.0",
        "100,000 ± 0",
        "10,000 ± 0",
        "0:10 ± 0:00",
    ]
    assert f"written: {stand_ins / 'seeds.json'}" in said.out
    assert "seed 5: finished" in said.err
    content = json.loads((stand_ins / "seeds.json").read_text())
    assert (content["algo"], content["env"], content["at_once"]) == ("ppo", "CartPole-v1", 2)
    assert content["over_seeds"]["final_eval"]["mean"] == 102.0
    assert len(list(csv.DictReader((stand_ins / "seeds.csv").read_text().splitlines()))) == 3


def test_the_log_of_a_failed_seed_is_shown_and_the_others_finish(
    stand_ins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(stand_ins, "--seeds", "12..14") == 1
    said = capsys.readouterr()
    assert "mean ± std\t2 seeds\t113.0 ± 1.41" in said.out
    assert "13\tfailed\t-\t-" in said.out
    assert f"seed 13: failed (exit code 1). The end of {stand_ins / 'logs' / 'seed_13.txt'}:" in said.err
    assert "\n  error: seed 13 brings bad luck.\n" in said.err
    assert "seed 12: failed" not in said.err


def test_devices_are_assigned_in_turn(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.train_many.allowed_cores", lambda: [0, 1, 2, 3])
    assert run(stand_ins, "--seeds", "0..3", "--devices", "cuda:0, cuda:1", "--at-once", "4") == 0
    assert [asked(stand_ins, seed)[-1] for seed in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    rows = json.loads((stand_ins / "seeds.json").read_text())["seeds"]
    assert [row["cores"] for row in rows] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("words", "slots"), [([], 3), (["--at-once", "9"], 5), (["--devices", "cuda:0,cuda:1"], 2), (["--at-once", "1"], 1)]
)
def test_one_per_core_or_device_unless_told(
    words: list[str], slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("paceline.cli.train_many.allowed_cores", lambda: [0, 1, 2])
    monkeypatch.setattr(SeedRuns, "run", lambda self, watch: seen.append(len(self._free)))
    assert run(tmp_path, "--seeds", "0..4", *words) == 1  # none of them has finished
    assert seen == [slots]


def test_resume_resumes_existing_runs_and_starts_the_others(
    stand_ins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(stand_ins, "--seeds", "0,1") == 0
    assert run(stand_ins, "--seeds", "1,2") == 2
    assert f"output_dir {str(stand_ins / 'seed_1')!r}: holds a run already." in capsys.readouterr().err
    assert not (stand_ins / "seed_2").exists()
    assert run(stand_ins, "--seeds", "1,2", "--resume", "--total-timesteps", "2e6") == 0
    assert asked(stand_ins, 1)[-1] == "--resume"
    assert "--resume" not in asked(stand_ins, 2)
    assert run(stand_ins, "--seeds", "1,2", "--overwrite") == 0
    assert "--overwrite" in asked(stand_ins, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "train-many: an algorithm comes first (ppo"),
        (["--seeds", "0..3"], "train-many: an algorithm comes first (ppo"),
        (["pppo"], "pppo: no such algorithm. Did you mean 'ppo'?"),
        (["ppo", "--output-dir", "x"], "seeds: required"),
        (["ppo", "--seeds", "0..3"], "output_dir: required"),
        (["ppo", "--seeds", "0..x", "--output-dir", "x"], "seeds='0..x': must be non-negative integers"),
        (["ppo", "--seeds", "0,1", "--seed", "3", "--output-dir", "x"], "seed=3: train-many trains one agent for each"),
        (["ppo", "--seeds", "0,1", "--output-dir", "x"], "env: required"),
        (
            ["ppo", "--seeds", "0,1", "--output-dir", "x", "--n-evs", "3"],
            "--n-evs: no such flag. Did you mean '--n-envs'",
        ),
        (["@", "--resume", "runs/a"], "resume='runs/a': every seed resumes its own run"),
        (["@", "--at-once", "0"], "at_once=0: must be at least 1"),
        (["@", "--at-once", "few"], "at_once='few': must be an integer"),
        (["@", "--checkpoint-dir", "c"], "checkpoint_dir: seeds cannot share one"),
        (["@", "--devices", "gpu"], "device='gpu': must be cpu"),
        (["@", "--devices", "cuda:0", "--device", "cpu"], "device and devices: --device is for all seeds"),
        (["@", "--output-dir", "/dev/null/x"], "output_dir '/dev/null/x': must be writable"),
    ],
)
def test_bad_arguments_exit_with_2_and_start_nothing(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = ["ppo", "--env", "CartPole-v1", "--seeds", "0,1", "--output-dir", "x"]
    assert cli.main(["train-many", *(good if words[:1] == ["@"] else words[:1]), *words[1:]]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_lists_own_flags_and_refers_to_train(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train-many", "--help"]) == 0
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        cli.main(["train-many", "ppo", "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out == shown
    for part in ("--seeds", "--devices", "--at-once", "--output-dir", "--resume", "paceline train ALGO"):
        assert part in shown


def test_the_live_table_has_a_row_per_seed(tmp_path: Path) -> None:
    states: list[SeedState] = ["running", "finished", "failed", "waiting"]
    jobs = [
        SeedRun(seed=seed, folder=tmp_path, log=tmp_path / f"{seed}.txt", command=(), state=state)
        for seed, state in enumerate(states)
    ]
    jobs[0].log.write_text("first\n[0:05] 12,345 / 100,000 steps | " + "more " * 50 + "\n")
    console = Console(record=True, width=60, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(train_many.live_table(jobs))
    lines = console.export_text().splitlines()
    console.file.close()
    assert len(lines) == 5
    assert lines[1].split()[:2] == ["0", "running"]
    assert "[0:05] 12,345 / 100,000 steps" in lines[1]
    assert lines[1].endswith("…")
    assert [line.split() for line in lines[2:]] == [["1", "finished"], ["2", "failed"], ["3", "waiting"]]


def steps(folder: Path) -> int:
    try:
        return len((folder / "progress.csv").read_text().splitlines()) - 1
    except OSError:
        return -1


def wait_until(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.perf_counter() + WAIT_S
    while not true():
        if process.poll() is not None or time.perf_counter() > deadline:
            process.kill()
            pytest.fail(f"ended early: {process.communicate()}")
        time.sleep(0.02)


def test_ctrl_c_stops_real_runs_at_a_safe_point(tmp_path: Path) -> None:
    """A terminal signals only the process group of the command, which forwards the signal to the runs once."""
    flags = "--env CartPole-v1 --n-envs 4 --n-steps 8 --n-epochs 1 --num-workers 0 --n-eval-episodes 0 --save-freq 0"
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "train-many", "ppo", *flags.split(), "--seeds", "0..2", "--at-once", "2",
         "--output-dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: all(steps(tmp_path / f"seed_{seed}") > 2 for seed in (0, 1)), process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert [line.split("\t")[1] for line in out.splitlines()[1:4]] == ["stopped", "stopped", "waiting"]
    for seed in (0, 1):
        said = json.loads((tmp_path / f"seed_{seed}" / "summary.json").read_text())
        assert said["stop_reason"] == "SIGINT"
        assert checkpoint.find(tmp_path / f"seed_{seed}").name == checkpoint.step_name(said["steps"])
