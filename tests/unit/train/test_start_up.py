"""Start-up before torch is imported: which configs start the fork server, and exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.train import start_up


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What the fork server was started with."""
    calls: list[Sequence[str]] = []
    monkeypatch.setattr(start_up, "start_fork_server", calls.append)
    return calls


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({"num_workers": 2, "start_method": "forkserver"}, True),
        ({"num_workers": "auto", "start_method": "forkserver"}, True),
        ({"num_workers": 0, "start_method": "forkserver"}, False),
        ({"num_workers": 2, "start_method": "spawn"}, False),
        ({"num_workers": 2, "start_method": "fork"}, False),
        ({"runtime": "ray", "start_method": "forkserver"}, False),
    ],
)
def test_the_fork_server_is_started_if_it_will_start_workers(
    settings: dict[str, Any], starts: bool, started: list[Sequence[str]]
) -> None:
    start_up.begin(TrainConfig.from_flat(env="CartPole-v1", n_envs=8, **settings))
    assert started == ([start_up.PRELOAD] if starts else [])


@pytest.mark.parametrize(("default", "starts"), [("forkserver", True), ("spawn", False)])
def test_without_a_start_method_the_default_of_the_platform_decides(
    default: str, starts: bool, started: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "default_start_method", lambda: default)
    start_up.begin(TrainConfig.from_flat(env="CartPole-v1", n_envs=8, num_workers=2))
    assert bool(started) is starts


def test_the_module_imports_no_torch_and_what_it_preloads_does() -> None:
    code = (
        "import sys, importlib; from paceline.train import start_up; assert 'torch' not in sys.modules; "
        "[importlib.import_module(name) for name in start_up.PRELOAD]; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_first_line_is_said_before_torch_is_imported_unless_the_run_is_quiet() -> None:
    """Importing torch takes seconds; here it fails."""
    code = (
        "import sys; from paceline import cli\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': raise ImportError('no torch here')\n"
        "sys.meta_path.insert(0, NoTorch()); cli.main(sys.argv[1:])"
    )
    words = ["train", "ppo", "--env", "CartPole-v1", "--num-workers", "0"]
    first = []
    for more in ([], ["--quiet"]):
        command = [sys.executable, "-c", code, *words, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.stderr.splitlines()[-1] == "ImportError: no torch here"
        first.append(done.stderr.splitlines()[0])
    assert first[0] == "starting ppo on CartPole-v1: importing PyTorch, then making the envs"
    assert first[1].startswith("Traceback")


def test_the_first_line_of_a_resumed_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    start_up.begin(TrainConfig.from_flat(env="CartPole-v1", num_workers=0, resume="runs/x"))
    assert capsys.readouterr().err.startswith("resuming ppo on CartPole-v1: ")


@pytest.mark.parametrize(
    ("reason", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("total_timesteps", 0), ("callback SIGINT", 0), (None, 0)]
)
def test_exit_codes_follow_the_stop_reason(reason: str | None, code: int) -> None:
    assert start_up.exit_code(reason) == code
