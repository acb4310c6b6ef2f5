"""Importing CybORG and identifying its commit and rules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paceline.errors import ConfigError, MissingExtra
from paceline.integrations.cyborg import CybORGEnv, install, simulator

COMMIT = "26ce1c1253fa9e2e73f25e6a7f2da32860c11257"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package folder of CybORG in a checkout with a git folder."""
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    folder = tmp_path / "CybORG" / "CybORG"
    folder.mkdir(parents=True)
    return folder


def test_the_commit_of_a_branch(package: Path, tmp_path: Path) -> None:
    assert install.commit_of(package) is None
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    assert install.commit_of(package) == COMMIT


def test_the_commit_of_packed_refs(package: Path, tmp_path: Path) -> None:
    lines = f"# pack-refs with: peeled\n{'0' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n"
    (tmp_path / ".git" / "packed-refs").write_text(lines)
    assert install.commit_of(package) == COMMIT


def test_the_commit_of_a_worktree(package: Path, tmp_path: Path) -> None:
    main, own = tmp_path / ".git", tmp_path / "elsewhere"
    own.mkdir()
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../.git\n")
    (main / "refs" / "heads" / "side").write_text(COMMIT)
    work = tmp_path / "work" / "CybORG" / "CybORG"
    work.mkdir(parents=True)
    (tmp_path / "work" / ".git").write_text(f"gitdir: {own}\n")
    assert install.commit_of(work) == COMMIT
    (own / "HEAD").write_text(f"{'a' * 40}\n")
    assert install.commit_of(work) == "a" * 40


def test_a_repository_further_up_is_ignored(package: Path, tmp_path: Path) -> None:
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(COMMIT)
    installed = tmp_path / "venv" / "site-packages" / "CybORG"
    installed.mkdir(parents=True)
    assert install.commit_of(installed) is None


def test_without_cyborg_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CYBORG_PATH", raising=False)
    refuse(monkeypatch, "CybORG")
    with pytest.raises(
        MissingExtra, match=r"git clone https://github.com/cage-challenge/.*pip install -e .*CYBORG_PATH"
    ):
        CybORGEnv()


def test_a_package_that_cyborg_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CYBORG_PATH", raising=False)
    refuse(monkeypatch, "prettytable")
    with pytest.raises(MissingExtra, match=r"import of 'prettytable' needs an extra: pip install 'paceline\[cyborg\]'"):
        simulator()


def refuse(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def none(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(importlib, "import_module", none)


def test_a_path_without_cyborg_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CYBORG_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"holds no CybORG/CybORG/__init__\.py"):
        CybORGEnv()


@pytest.mark.parametrize("named", ["checkout", "package's folder"])
def test_the_path_comes_before_what_is_installed(
    package: Path, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    install._prefer(tmp_path if named == "checkout" else package.parent)
    assert sys.path[0] == str(package.parent)


def test_another_cyborg_that_is_already_imported_is_refused(
    standin: ModuleType, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("CYBORG_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="already imported CybORG from"):
        simulator()


def test_the_rule_set_is_recognised(standin: Any) -> None:
    assert simulator().rules == "head"
    simulator.cache_clear()
    del standin.RedAbstractSession.clearports
    assert simulator().rules == "unknown"
    simulator.cache_clear()
    standin.ProcessVersion.parse_string = staticmethod(lambda text: "UNKNOWN")
    assert simulator().rules == "leaderboard-2022"
