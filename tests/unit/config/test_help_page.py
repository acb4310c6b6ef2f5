"""The pages of --help: common flags first, the others by group."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass

import pytest

from paceline.config.algorithms import ALGORITHMS
from paceline.config.flags import NoOptions, parse, read
from paceline.config.help_page import COMMON
from paceline.config.train_config import section_of
from paceline.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Own:
    rounds: int = 5
    """Rounds of the benchmark."""


def page(*words: str, algo: str = "ppo", extra: type[object] = NoOptions, **defaults: object) -> str:
    """What a command prints on a terminal with 80 columns."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as left:
            read(words, prog="paceline train ppo", description="Trains.", algo=algo, extra=extra, defaults=defaults)
    assert left.value.code == 0
    return printed.getvalue()


def flags_in(text: str) -> list[str]:
    return [line.split()[0][2:].replace("-", "_") for line in text.splitlines() if line.startswith("  --")]


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_describes_the_common_flags_and_names_the_others(word: str) -> None:
    shown = page("--env", "X-v0", word)
    assert flags_in(shown) == list(COMMON)
    assert len(shown.splitlines()) < 60
    assert "paceline train ppo --help GROUP" in shown
    assert "--help-all" in shown
    names = shown.partition("More flags.")[2].replace(",", " ").split()
    assert {name.replace("_", "-") for name in section_of("ppo").keys() - {*COMMON, "algo"}} <= set(names)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_help_all_describes_every_setting_once_and_fits_80_columns(algo: str) -> None:
    shown = page("--help-all", algo=algo)
    assert sorted(flags_in(shown)) == sorted([*section_of(algo).keys() - {"algo"}, "config"])
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert " ".join(shown.split()).count("(default: ") == len(flags_in(shown)) - 1  # env is required
    assert "--lr (--learning-rate)" in " ".join(shown.split())


def test_help_of_a_group_describes_all_its_flags() -> None:
    shown = page("--help", "training", algo="dqn")
    assert shown.startswith("training flags:\n")
    assert set(flags_in(shown)) == {name for name, section in section_of("dqn").items() if section == "training"}


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--help trainign: no such group of flags. Did you mean 'training'\?"):
        parse(["--help", "trainign"], prog="p", description="d", extra=NoOptions)


def test_flags_of_the_command_come_first() -> None:
    assert flags_in(page("--help", extra=Own)) == ["rounds", *COMMON]
    assert "flags of train ppo:\n  --rounds INT            Rounds of the benchmark. (default: 5)\n" in page(
        "-h", extra=Own
    )


def test_defaults_of_the_command_are_shown() -> None:
    assert "Number of envs over all workers. (default: 100)" in page("--help", n_envs=100)


@pytest.mark.parametrize("words", [["train", "ppo"], ["train", "dqn"], ["bench"], ["tune"]])
def test_help_loads_neither_torch_nor_numpy(words: list[str]) -> None:
    code = (
        "import sys; from paceline.cli import main\n"
        f"try: main({[*words, '--help']!r})\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'numpy', 'gymnasium'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "common flags:" in done.stdout
