"""Runs the Python blocks and commands of README.md and docs/, and checks their links.

Budgets are reduced first, so that this takes seconds. `make TARGET` is replaced by the commands of the target, and
`--device mps` by the CPU. The fence line or the first line of a block can have a mark:

    ```python no-test     the block is not run; commands of a bash block are only parsed
    ```python no-test sb3 the same, but `make test-sb3` runs it: code of stable-baselines3
    # corridor.py         the block is a file of that name, for the blocks and commands of its page
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paceline.cli import COMMANDS, main
from paceline.cli.bench import BenchOptions
from paceline.cli.tune import TuneOptions
from paceline.config.algorithms import ALGORITHMS
from paceline.config.flags import NoOptions, parse, read
from paceline.domains.cyber.command import SearchOptions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./-]+\.(?:py|yaml))\n")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
ASSIGNMENT = re.compile(r"\w+=\S*")

SHRINK = 256
"""Divisor of budgets in steps: 100,000 becomes 390. Ratios between budgets of a page are kept."""
SMALL = {"--n-steps": "8", "--n-eval-episodes": "1"}
"""Flags that replace those of every `train` and `train-many` command. The batch size then is one full batch."""
SHORT_BENCH = {"--rounds": "1", "--window-s": "0.05", "--n-steps": "8"}
COUNTED = ("--total-episodes", "--num-episodes", "--eval-freq", "--save-freq")
"""Flags of `train` whose numbers are reduced like the budget."""
PREFIXES = ("taskset",)
"""Programs that run the command after their own `-c VALUE`."""
OUTSIDE = ("cat", "grep", "htop", "kill", "pip", "pstree", "python", "ulimit", "wandb")
"""Programs that pages may show and that are not run here: installers, viewers and other tools."""
RUN_ALL = """
import os, runpy, sys
for path in sys.argv[1:]:
    print("running", path, flush=True)
    os.chdir(os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")
"""
"""Runs several files in one process, because importing torch takes most of the time. Each has its own namespace."""
PARTS = 3
"""Processes that share the pages, so that each ends within the time limit of a test on a busy machine."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    marks: list[str]
    """The other words of the fence line."""

    @property
    def tested(self) -> bool:
        """Whether the block is run."""
        return "no-test" not in self.marks

    @property
    def file_name(self) -> str | None:
        """The file name in the first line of the block."""
        found = FILE_NAME.match(self.code)
        return found[1] if found else None


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text[: found.start()].count("\n") + 1
        yield Block(found[1], found[3], line, found[2].split())


def _write_files(page: Path, folder: Path) -> None:
    for block in _blocks(page):
        if block.file_name is not None:
            target = folder / block.file_name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")


def _commands(shell: str) -> Iterator[list[str]]:
    """The words of each command of a bash block. A make target is replaced by its commands."""
    for line in shell.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        if words and words[0] in PREFIXES:
            words = words[3:]
        if words and words[0] == "make":
            yield from _made(tuple(words[1:]))
        elif words:
            yield words


@functools.cache
def _made(words: tuple[str, ...]) -> tuple[list[str], ...]:
    """The `paceline` commands that `make` would run."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    installed = ["-o", ".venv/.installed", "-o", ".venv/.dev-installed"]
    order = ["make", "-n", "--no-print-directory", *installed, *words]
    done = subprocess.run(order, cwd=ROOT, env=plain, capture_output=True, text=True, check=True, timeout=60)
    found = (shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines() if ".venv/bin/" in line)
    named = ([Path(program).name, *rest] for program, *rest in found)
    return tuple(command for command in named if command[0] in ("paceline", "tensorboard"))


def _pages_with_commands() -> list[object]:
    pages = [page for page in PAGES if any(block.language == "bash" for block in _blocks(page))]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def _short_code(code: str) -> str:
    return re.sub(
        r"total_timesteps=([\d_]+)", lambda found: f"total_timesteps={_fewer(found[1].replace('_', ''))}", code
    )


def _short(words: list[str]) -> list[str]:
    """A command with its budget reduced to a few iterations."""
    command, *rest = words
    if command in ("bench", "tune"):
        return [command, *_replaced(rest, SHORT_BENCH)]
    if command not in ("train", "train-many"):
        return words
    given = dict(itertools.pairwise(rest))
    steps = given.get("--total-timesteps", "2e5" if "--resume" in rest else "1e5")
    cut = {flag: _fewer(given[flag]) for flag in COUNTED if flag in given}
    device = {"--device": "cpu"} if "--device" in given else {}
    # A time budget is kept: the budget that is spent first ends the run.
    return [command, *_replaced(rest, {**SMALL, **cut, **device, "--total-timesteps": _fewer(steps)}), "--quiet"]


def _replaced(words: list[str], flags: dict[str, str]) -> list[str]:
    """The words with these flags set, replacing earlier values."""
    kept = [
        word for before, word in zip(["", *words], words, strict=False) if word not in flags and before not in flags
    ]
    return [*kept, *(part for flag in flags.items() for part in flag)]


def _fewer(steps: str) -> str:
    return str(int(float(steps)) // SHRINK)


@pytest.mark.parametrize("part", range(PARTS))
def test_python_runs(part: int, tmp_path: Path) -> None:
    scripts = []
    for page in PAGES[part::PARTS]:
        folder = tmp_path / page.stem
        _write_files(page, folder)
        for block in _blocks(page):
            if block.language == "python" and block.tested:
                script = folder / f"line_{block.line}.py"
                script.parent.mkdir(exist_ok=True)
                script.write_text(_short_code(block.code), encoding="utf-8")
                scripts.append(str(script))
    assert scripts
    done = subprocess.run([sys.executable, "-c", RUN_ALL, *scripts], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", _pages_with_commands())
def test_commands_are_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare(page, tmp_path, monkeypatch)
    for block in _blocks(page):
        for program, *words in _commands(block.code) if block.language == "bash" else ():
            if program != "paceline":
                assert program in (*OUTSIDE, "tensorboard"), f"line {block.line}: {program} is not known here"
                continue
            command, *rest = words
            assert command in COMMANDS
            if command == "train":
                assert rest[0] in ALGORITHMS
                if "--resume" not in rest:  # parsing --resume needs the run of an earlier command
                    parse(rest[1:], prog="", description="", algo=rest[0], extra=NoOptions)
            elif command in ("bench", "tune"):
                parse(rest, prog="", description="", extra=BenchOptions if command == "bench" else TuneOptions)
            elif command == "cyber" and rest[0] in ("train", "search"):
                read(rest[1:], prog="", description="", extra=SearchOptions)


@pytest.mark.parametrize("page", _pages_with_commands())
def test_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run commands in the order of the page, because some use files of earlier ones. `paceline check` is replaced."""
    _prepare(page, tmp_path, monkeypatch)
    monkeypatch.setattr("paceline.insight.selftest.parts", lambda *_: [])
    monkeypatch.setattr("paceline.train.layout.CALIBRATION_S", 0.05)
    monkeypatch.setitem(sys.modules, "wandb", MagicMock())  # the calls of wandb have their own tests
    for block in _blocks(page):
        if block.language != "bash" or not block.tested:
            continue
        for program, *words in _commands(block.code):
            if program == "tensorboard":
                assert _scalars(Path(words[words.index("--logdir") + 1]))
            if program != "paceline":
                continue
            words = _short(words)
            code = main(words)
            assert code == 0, f"paceline {shlex.join(words)} -> {code}\n{capfd.readouterr()}"


def _prepare(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder like a checkout, with the files of a page."""
    _write_files(page, folder)
    (folder / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)


def _scalars(folder: Path) -> list[str]:
    """Tags that TensorBoard's reader finds in a log folder, or in the log folders of the runs in it."""
    logs = {path.parent for path in folder.rglob("events.out.tfevents.*")}
    return [tag for path in logs for tag in EventAccumulator(str(path)).Reload().Tags()["scalars"]]


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {
        words[1]
        for page in PAGES
        for block in _blocks(page)
        if block.language == "bash"
        for words in map(shlex.split, re.findall(r"^make .*$", block.code, re.MULTILINE))
    }
    assert shown
    assert shown <= targets


def _leads(path: Path) -> bool:
    """Whether the link has a target in a checkout; git does not store empty folders."""
    return path.is_file() or any(found.is_file() and found.suffix != ".pyc" for found in path.rglob("*"))


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [(page, link) for page, link in links if not link.startswith(("https://", "http://"))]
    assert local
    dead = [f"{page.relative_to(ROOT)}: {link}" for page, link in local if not _leads(page.parent / link)]
    assert not dead
