"""`FaultEnv` fails in the chosen way, step, episode and env."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from paceline.envs.fault import FaultEnv, OddError
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError


def run_to_fault(env: FaultEnv, seed: int = 0, steps: int = 3) -> None:
    env.reset(seed=seed)
    for _ in range(steps):
        env.step(0)


def test_fails_in_the_step_that_was_asked_for() -> None:
    env = FaultEnv(mode="raise", at_step=3)
    run_to_fault(env, steps=2)
    with pytest.raises(RuntimeError, match="step"):
        env.step(0)


def test_fails_in_the_episode_and_env_that_were_asked_for() -> None:
    env = FaultEnv(mode="raise", at_step=1, at_episode=2, env_index=5, run_seed=9)
    for index, episode in [(5, 0), (5, 1), (4, 2)]:
        run_to_fault(env, episode_seed(9, index, episode))
    with pytest.raises(RuntimeError):
        run_to_fault(env, episode_seed(9, 5, 2))


def test_once_means_once_for_all_processes(tmp_path: Path) -> None:
    flag = str(tmp_path / "happened")
    with pytest.raises(RuntimeError, match="constructor"):
        FaultEnv(mode="raise_init", once=flag)
    FaultEnv(mode="raise_init", once=flag)


def test_reset_fault() -> None:
    env = FaultEnv(mode="raise_reset", at_episode=1)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="reset"):
        env.reset(seed=1)


def test_odd_exception_cannot_be_pickled() -> None:
    with pytest.raises(OddError) as caught:
        run_to_fault(FaultEnv(mode="raise_odd"))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(caught.value)


def test_invalid_observations_and_rewards() -> None:
    env = FaultEnv(mode="nan_obs")
    env.reset(seed=0)
    assert np.isnan(env.step(0)[0]).any()
    env = FaultEnv(mode="nan_reward")
    env.reset(seed=0)
    assert np.isnan(env.step(0)[1])
    env = FaultEnv(mode="wrong_shape")
    env.reset(seed=0)
    assert env.step(0)[0].shape == (3,)


@pytest.mark.parametrize(("mode", "code"), [("exit", 7), ("sys_exit", 3), ("segfault", -signal.SIGSEGV)])
def test_process_ends(mode: str, code: int) -> None:
    program = f"from paceline.envs.fault import FaultEnv; e = FaultEnv(mode={mode!r}); e.reset(seed=0); e.step(0)"
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == code


@pytest.mark.alone
@pytest.mark.parametrize(("mode", "holds_gil"), [("hang", False), ("hang_gil", True)])
def test_hangs_with_or_without_the_interpreter_lock(mode: str, holds_gil: bool) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    run_to_fault(FaultEnv(mode=mode, hang_s=1.0), steps=1)  # type: ignore[arg-type]
    stop.set()
    thread.join()
    longest = max(b - a for a, b in zip(ticks, [*ticks[1:], time.perf_counter()], strict=True))
    assert (longest >= 0.9) == holds_gil


def test_unknown_mode_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'segfault'"):
        FaultEnv(mode="segfalt")  # type: ignore[arg-type]
