"""Imports the user's CybORG and identifies its version, commit and rule set; builds games of it.

CybORG reports version 2.1 with and without two later fixes of its rules, so the version does not identify the rules.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, MissingExtra
from paceline.integrations.cyborg.chance import redirect

PACKAGE = "CybORG"
PATH_VARIABLE = "CYBORG_PATH"
SOURCE = "https://github.com/cage-challenge/cage-challenge-2"
RED_AGENTS = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}


@dataclass(frozen=True, slots=True)
class Simulator:
    """Version and place of the imported CybORG."""

    version: str
    """Version that the package reports."""
    commit: str | None
    """Commit of the checkout that it is imported from; None if it is not in a checkout."""
    rules: str
    """`head`, `leaderboard-2022`, or `unknown` if only one of the two fixes is there."""
    folder: Path
    """The imported package."""

    def __str__(self) -> str:
        commit = f"commit {self.commit[:12]}" if self.commit else "commit unknown"
        return f"CybORG {self.version}, {commit}, rules of {self.rules}, from {self.folder}"


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of one game, innermost first."""

    cyborg: Any
    true_table: Any
    blue_table: Any
    enumerated: Any
    """The outermost wrapper: takes action numbers and returns 52 bits."""

    @property
    def controller(self) -> Any:
        """CybORG's environment controller, which runs a step."""
        return self.cyborg.environment_controller


@cache
def simulator() -> Simulator:
    """Import CybORG from `CYBORG_PATH` if that is set, else as installed, and identify it.

    Raises:
        MissingExtra: CybORG or a package that it needs is not installed.
        ConfigError: `CYBORG_PATH` is not a checkout of CybORG, or another one has been imported before.
    """
    path = os.environ.get(PATH_VARIABLE)
    if path:
        _prefer(Path(path).expanduser())
    # CybORG imports gym, which prints to stderr that it is unmaintained. Import it first, without that output.
    with suppress(ImportError), redirect_stderr(StringIO()):
        importlib.import_module("gym")
    package = _import(PACKAGE)
    folder = Path(package.__file__).resolve().parent
    if path and not folder.is_relative_to(Path(path).expanduser().resolve()):
        raise ConfigError(
            f"{PATH_VARIABLE}={path!r}: this process has already imported CybORG from {str(folder)!r}. "
            "Set the variable before the first import of CybORG, or do not set it."
        )
    _import(f"{PACKAGE}.Agents.Wrappers")
    redirect(PACKAGE)
    return Simulator(str(package.CYBORG_VERSION), commit_of(folder), _rules(), folder)


def build(red_agent: str, *, green: bool = False) -> Parts:
    """Make a game of Scenario2 with the challenge's wrappers for the defender.

    Args:
        red_agent: A name in `RED_AGENTS`.
        green: Whether benign users scan hosts now and then.
    """
    folder = simulator().folder
    agents, wrappers = _import(f"{PACKAGE}.Agents"), _import(f"{PACKAGE}.Agents.Wrappers")
    playing: dict[str, Callable[[], Any]] = {"Red": getattr(agents, RED_AGENTS[red_agent])}
    if green:
        playing["Green"] = agents.GreenAgent
    scenario = folder / "Shared" / "Scenarios" / "Scenario2.yaml"
    cyborg = _import(PACKAGE).CybORG(str(scenario), "sim", agents=playing)
    blue_table = wrappers.BlueTableWrapper(cyborg, output_mode="vector")
    return Parts(cyborg, blue_table.env, blue_table, wrappers.EnumActionWrapper(blue_table))


def commit_of(package: Path) -> str | None:
    """The commit of a package's checkout, read from git's files; None if the package is not in a checkout.

    Searches only two folders above the package: a repository higher up may be an unrelated one.
    """
    for root in package.parents[:2]:
        git = root / ".git"
        if git.is_file():  # a worktree or a submodule: the file has the path of the git folder
            git = root / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        if (git / "HEAD").is_file():
            return _head(git)
    return None


def _head(git: Path) -> str | None:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    folders = [git, git / shared.read_text(encoding="utf-8").strip()] if shared.is_file() else [git]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    for folder in folders:
        packed = folder / "packed-refs"
        for line in packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []:
            commit, _, ref = line.partition(" ")
            if ref.strip() == name:
                return commit
    return None


def _rules() -> str:
    """The rule set, by testing for the two later fixes: rescans forget old ports, and Haraka survives a Restore."""
    ports = hasattr(_import(f"{PACKAGE}.Simulator.Session").RedAbstractSession, "clearports")
    haraka = _import(f"{PACKAGE}.Shared.Enums").ProcessVersion.parse_string("another version") == "another version"
    if ports != haraka:
        return "unknown"
    return "head" if ports else "leaderboard-2022"


def _prefer(checkout: Path) -> None:
    for folder in (checkout / PACKAGE, checkout):
        if (folder / PACKAGE / "__init__.py").is_file():
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            return
    raise ConfigError(
        f"{PATH_VARIABLE}={str(checkout)!r}: holds no CybORG/CybORG/__init__.py. Set it to a checkout of {SOURCE}."
    )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != PACKAGE:
            raise MissingExtra(f"CybORG's own import of {error.name!r}", "cyborg") from error
        raise MissingExtra(
            f"CybORG is not on the package registry: git clone {SOURCE} && pip install -e cage-challenge-2/CybORG, "
            f"or set {PATH_VARIABLE}=cage-challenge-2 and install the packages that it imports, which",
            "cyborg",
        ) from error
