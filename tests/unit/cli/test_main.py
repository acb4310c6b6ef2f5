from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable

import pytest

from paceline import cli
from paceline.errors import ConfigError, EnvError, nearest


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], int]], None]:
    """Register a function as the command `paceline probe`."""

    def install(run: Callable[[list[str]], int]) -> None:
        module = types.ModuleType("paceline_probe")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "paceline_probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", ("paceline_probe", "for tests"))

    return install


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in cli.COMMANDS)
    assert [line for line in shown.splitlines() if len(line) > 100 or (line.startswith("  ") and len(line) > 80)] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("paceline 0.")


def test_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert capsys.readouterr().err == "error: trian: no such command. Did you mean 'train'?\n"


def _fail_config(argv: list[str]) -> int:
    raise ConfigError(f"x={argv}: bad.")


def _fail_env(argv: list[str]) -> int:
    raise EnvError("env 3 raised.")


def _interrupt(argv: list[str]) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        (_fail_config, 2, "error: x=['a']: bad.\n"),
        (_fail_env, 1, "error: env 3 raised.\n"),
        (_interrupt, 130, "interrupted\n"),
        (lambda argv: 7, 7, ""),
    ],
)
def test_errors_become_exit_codes_and_one_line(
    run: Callable[[list[str]], int],
    code: int,
    said: str,
    command: Callable[[Callable[[list[str]], int]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PACELINE_DEBUG", raising=False)
    command(run)
    assert cli.main(["probe", "a"]) == code
    assert capsys.readouterr().err == said


def test_debug_shows_the_traceback(
    command: Callable[[Callable[[list[str]], int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(_fail_config)
    monkeypatch.setenv("PACELINE_DEBUG", "1")
    with pytest.raises(ConfigError):
        cli.main(["probe"])


def test_threads_default_to_one_unless_the_user_sets_them(
    command: Callable[[Callable[[list[str]], int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}
    command(lambda argv: seen.update(os.environ) or 0)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cli.main(["probe"])
    assert (seen["MKL_NUM_THREADS"], seen["OMP_NUM_THREADS"]) == ("1", "3")


def test_help_loads_nothing_heavy() -> None:
    """`paceline --help` is fast, because it imports neither torch nor numpy."""
    code = (
        "import sys; from paceline.cli import main; main(['--help']);"
        "sys.exit(', '.join({'torch', 'numpy', 'gymnasium', 'rich', 'matplotlib'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "paceline", "tarin"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: tarin: ")


def test_a_closed_pipe_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # a pipe without a reader, as with `| head -0`
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "train", "ppo", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_nearest_lists_what_is_known_when_nothing_is_close() -> None:
    assert nearest("qqq", ["ppo", "dqn"]) == "Known: dqn, ppo."
