"""Benchmarks and examples take half an hour to run, so nobody does: what they ask of the package must be there."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def asked_for() -> Iterator[tuple[str, str, str]]:
    """Script, module and name of every import from the package; environments of peers have none of it."""
    for folder in ("benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(part.startswith(".") for part in path.relative_to(ROOT).parts):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "paceline":
                    for alias in node.names:
                        yield path.relative_to(ROOT).as_posix(), node.module, alias.name


def test_there_is_something_to_look_at() -> None:
    assert len(list(asked_for())) > 50


def test_what_peers_load_asks_for_nothing_of_ours() -> None:
    """Their environments do not have it: only scripts that run in ours may ask for it before they are told to."""
    for path in sorted((ROOT / "benchmarks" / "peers").glob("*.py")):
        if path.stem in ("run_paceline", "run_bare"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "paceline" for name in names), path.name


@pytest.mark.parametrize(("module", "name", "by"), sorted({(m, n, script) for script, m, n in asked_for()}))
def test_what_scripts_import_from_the_package_exists(module: str, name: str, by: str) -> None:
    found = hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None
    assert found, f"{by}: from {module} import {name}"
