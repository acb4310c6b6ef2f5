"""Signals, errors and killed processes of `paceline train` on the command line."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import psutil
import pytest

from paceline import cli
from paceline.train import checkpoint

ROOT = Path(__file__).parents[2]
SMALL = ("--n-envs", "8", "--n-steps", "32", "--batch-size", "64", "--n-epochs", "1", "--num-workers", "2")
FAULT = ("--env", "paceline.envs.fault:FaultEnv", "--env-kwargs")
WAIT_S = 60.0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def training(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Start `paceline train ppo` in a new session, as a terminal does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "train", "ppo", "--output-dir", str(folder), *SMALL, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(true: Callable[[], object], process: subprocess.Popen[str], what: str) -> None:
    deadline = perf_counter() + WAIT_S
    while not true():
        if process.poll() is not None or perf_counter() > deadline:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"never saw {what}; exit code {process.returncode}\n{out}\n{err}")
        time.sleep(0.02)


def rows(folder: Path) -> int:
    try:
        with (folder / "progress.csv").open() as file:
            return len(list(csv.reader(file))) - 1
    except OSError:
        return -1


def summary(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return content


def listens(process: subprocess.Popen[str]) -> bool:
    """Return whether the process handles SIGTERM; a run sets handlers of SIGTERM and Ctrl-C when it begins to train."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return True
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_signals_end_at_a_safe_point_with_checkpoint_and_summary_and_the_run_goes_on(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole process group, as in a terminal; so may SIGTERM, as from a service manager."""
    folder = tmp_path / "run"
    env = ("--env", "CartPole-v1", "--n-eval-episodes", "1")
    steps = 0
    for number, code, flags in [
        (signal.SIGINT, 130, ("--total-timesteps", "1e9")),
        (signal.SIGTERM, 143, ("--total-timesteps", "1e9", "--resume")),
    ]:
        before = max(0, rows(folder))
        with training(folder, *env, *flags) as process:
            wait_until(lambda before=before: rows(folder) > before + 2, process, "progress")  # type: ignore[misc]
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == code, err
        assert "Traceback" not in out + err
        said = summary(folder)
        assert said["finished"] is False
        assert said["stop_reason"] == number.name
        assert int(str(said["steps"])) > steps
        steps = int(str(said["steps"]))
        # The checkpoint is complete, and of the step at which the run stopped.
        newest = checkpoint.find(folder)
        assert newest.name == checkpoint.step_name(steps)
        assert checkpoint.load(newest).meta["steps"] == steps


def test_a_second_ctrl_c_stops_now(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # 32 rows of 4 envs at 500 ms each: a rollout takes a minute, so the first Ctrl-C has long to wait for its end.
    busy = ("--env", "paceline/Busy-v0", "--env-kwargs", "cpu_ms=0", "sleep_ms=500", "--total-timesteps", "1e9")
    with training(folder, *busy) as process:
        wait_until(lambda: (folder / "layout.json").is_file() and listens(process), process, "the start")
        time.sleep(0.5)  # into the first rollout
        began = perf_counter()
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
        assert perf_counter() - began < 20.0, "it waited for the rollout"
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert err.index("Ctrl-C: stopping after this rollout. Ctrl-C again") < err.index("Ctrl-C: stopping now")
    assert checkpoint.find(folder).name == checkpoint.step_name(0), "nothing was lost but the first rollout"
    assert summary(folder)["stop_reason"] == "SIGINT"


@pytest.mark.parametrize(
    ("method", "when"), [("forkserver", "loading"), ("spawn", "loading"), ("forkserver", "resetting")]
)
def test_ctrl_c_while_it_starts_and_again_until_it_is_gone(method: str, when: str, tmp_path: Path) -> None:
    """Repeated Ctrl-C also hits processes that are still importing modules and processes that are exiting."""
    slow = (*FAULT, "mode=slow_reset", "env_index=1", f"once={tmp_path / 'resetting'}", "--total-timesteps", "1e9")
    with training(tmp_path / "run", *slow, "--start-method", method) as process:
        if when == "loading":
            # Besides the resource tracker.
            wait_until(lambda: len(children(process)) > 1, process, "the fork server, or a worker")
        else:
            wait_until((tmp_path / "resetting").exists, process, "the first reset")
        family = children(process)
        while process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert "interrupted" in err
    _, alive = psutil.wait_procs(family, timeout=2.0)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_without_workers_a_hang_that_keeps_the_interpreter_is_shown_and_costs_no_checkpoint(tmp_path: Path) -> None:
    """Nothing of the process runs any more but a timer in C, which prints the stack. Ctrl-\\ ends it."""
    flags = (*FAULT, "mode=hang_gil", "env_index=1", "at_episode=3", "--num-workers", "0", "--save-freq", "256")
    limits = ("--env-timeout-s", "1", "--start-timeout-s", "1", "--total-timesteps", "1e9")
    with training(tmp_path / "run", *flags, *limits) as process:
        assert process.stderr is not None
        assert any("in _hold_the_gil" in line for line in process.stderr)
        process.send_signal(signal.SIGQUIT)
        assert process.wait(WAIT_S) == -signal.SIGQUIT
    assert checkpoint.load(checkpoint.find(tmp_path / "run")).meta["steps"] >= 256


@pytest.mark.parametrize("what", ["busy", "hang_gil"])
def test_no_process_outlives_a_killed_trainer(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = (
        ("--env", "paceline/Busy-v0", "--env-kwargs", "cpu_ms=5")
        if what == "busy"
        else (*FAULT, "mode=hang_gil", "env_index=1", f"once={tmp_path / 'hanging'}", "at_episode=1")
    )
    with training(folder, *flags, "--total-timesteps", "1e9") as process:
        if what == "busy":
            wait_until(lambda: rows(folder) > 0, process, "progress")
        else:
            wait_until((tmp_path / "hanging").exists, process, "the hang")
            time.sleep(0.2)
        family = children(process)
        workers = [child for child in family if "paceline: worker" in " ".join(child.cmdline())]
        assert len(workers) == 2, family
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=2.0)
        left = [child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"still there after 2 s: {[child.cmdline() for child in left]}"


def test_no_process_outlives_a_trainer_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    """The fork server is then importing torch and cannot check for its driver."""

    def imports_torch(process: subprocess.Popen[str]) -> bool:
        servers = [child for child in children(process) if "forkserver" in " ".join(child.cmdline())]
        return any("libtorch" in one.path for server in servers for one in server.memory_maps())

    with training(tmp_path / "run", "--env", "CartPole-v1") as process:
        wait_until(lambda: imports_torch(process), process, "the import")
        family = children(process)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=2.0)
        left = [child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"still there after 2 s: {[child.cmdline() for child in left]}"


def test_a_failing_env_exits_with_1_and_one_error(tmp_path: Path) -> None:
    flags = (*FAULT, "mode=raise", "env_index=3", "at_step=5", "--total-timesteps", "1e6")
    with training(tmp_path / "run", *flags) as process:
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    last = err[err.index("error: ") :]
    assert "env 3 (seed 0, episode 0) raised in step 5 with action" in last
    assert err.count("Traceback (most recent call last)") <= 2, "the env's own, and ours around it"
    assert "paceline/cli" not in err, "the driver's own stack is of no use here"
    assert "RuntimeError: fault in step, as asked" in last
    assert summary(tmp_path / "run")["stop_reason"] == "WorkerError"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--env", "CartPole-v2"), "Did you mean 'CartPole-v1'?"),
        (("--env", "CartPole-v1", "--n-envs", "2"), "num_workers=2"),
        (("--env", "CartPole-v1", "--env-kwargs", "gravity=2"), "env_kwargs: unknown argument 'gravity'"),
    ],
    ids=["env id", "sizes", "env_kwargs"],
)
def test_bad_settings_exit_with_2_and_leave_no_run_behind(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*flags, "--group-size", "2") if "--n-envs" in flags else flags
    assert cli.main(["train", "ppo", "--output-dir", str(tmp_path / "run"), *SMALL, *flags]) == 2
    err = capsys.readouterr().err
    assert [line for line in err.splitlines() if line.startswith("error: ")]
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "run" / "summary.json").exists()


SCRIPT = """
import sys
print("imported", flush=True)          # a side effect that must happen once
import gymnasium as gym, numpy as np, torch
torch.set_num_threads(2)
(torch.rand(500, 500) @ torch.rand(500, 500)).sum()
from paceline import PPO

class Mine(gym.Env):                   # lives in the script alone
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 9
        return self.np_random.random(2).astype(np.float32), {}
    def step(self, action):
        self.left -= 1
        return self.np_random.random(2).astype(np.float32), 1.0, False, self.left == 0, {}

limit = 3
for method in sys.argv[1:]:
    agent = PPO(lambda: Mine() if limit else None, num_workers=2, n_envs=8, n_steps=8, batch_size=64,
                start_method=method, n_eval_episodes=1)
    agent.learn(64).learn(64)
    print(method, agent.summary.steps, agent.summary.final_eval.mean_reward, flush=True)
    agent.close()
"""


def run_script(text: str, folder: Path, *methods: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new folder until it ends."""
    (folder / "mine.py").write_text(text)
    return subprocess.run(
        [sys.executable, "mine.py", *methods],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
    )


def test_a_script_without_a_main_guard_works_and_runs_once(tmp_path: Path) -> None:
    """The script has used torch before, with its threads, and calls `learn` more than once."""
    done = run_script(SCRIPT, tmp_path, "spawn", "forkserver", "fork")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["imported", "spawn 128 9.0", "forkserver 128 9.0", "fork 128 9.0"]
    assert "Traceback" not in done.stderr
    assert "resource_tracker" not in done.stderr


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_a_script_that_closes_nothing_ends_all_the_same(method: str, tmp_path: Path) -> None:
    done = run_script(SCRIPT.replace("    agent.close()\n", ""), tmp_path, method)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["imported", f"{method} 128 9.0"]
