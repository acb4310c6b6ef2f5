"""Benchmarks and examples take too long to run in tests, so check that everything they import exists."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.faults import chaos, side_by_side

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"
OWN = ("paceline", "benchmarks")
PACELINE_PEERS = ("run_paceline", "run_bare")
"""Scripts in peers/ that run in an environment with Paceline."""


def files(*folders: str) -> list[Path]:
    """Python files of these folders, without those of virtual environments."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def own_imports() -> Iterator[tuple[str, str, str]]:
    """Module, name and script of every import from Paceline or from the benchmarks."""
    for path in files("benchmarks", "examples"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OWN:
                for alias in node.names:
                    yield node.module, alias.name, path.relative_to(ROOT).as_posix()
                    yield from attributes_of(node.module, alias, path)


def attributes_of(package: str, alias: ast.alias, path: Path) -> Iterator[tuple[str, str, str]]:
    """Attributes that a script reads from an imported module, as in `results.ratio`."""
    module = f"{package}.{alias.name}"
    files_of = [root.joinpath(*module.split(".")).with_suffix(".py") for root in (ROOT, ROOT / "src")]
    if not any(file.exists() for file in files_of):
        return
    name, script = alias.asname or alias.name, path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            yield module, node.attr, script


def exists(module: str, name: str) -> bool:
    """Whether `from module import name` works; reads peers' scripts instead of importing them."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if module.startswith("benchmarks.peers.") and path.exists():
        return (
            re.search(rf"^(?:def|class) {name}\b|^{name}\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE)
            is not None
        )
    found = importlib.import_module(module)
    return hasattr(found, name) or (hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


def test_scripts_import_from_the_package() -> None:
    assert len(list(own_imports())) > 50


@pytest.mark.parametrize(("module", "name", "by"), sorted(set(own_imports())))
def test_names_that_scripts_import_exist(module: str, name: str, by: str) -> None:
    assert exists(module, name), f"{by}: from {module} import {name}"


@pytest.mark.parametrize(
    "module", [module_of(path) for path in files("benchmarks") if "peers" not in path.parts and path.stem != "__init__"]
)
def test_every_benchmark_module_can_be_imported(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OWN:
            raise
        pytest.skip(f"needs {error.name}")


def test_scripts_of_other_libraries_import_no_paceline() -> None:
    for path in files("benchmarks/peers"):
        if path.stem in PACELINE_PEERS:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "paceline" for name in names), path.name


@pytest.mark.parametrize("module", ["benchmarks.harness.windows", "benchmarks.harness.paths", "benchmarks.peers"])
def test_what_other_interpreters_import_needs_the_standard_library_only(module: str) -> None:
    # -S leaves site-packages off the path.
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {module}"], cwd=ROOT, env={**os.environ, "PYTHONPATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_make_targets_and_contestants_name_existing_modules() -> None:
    sources = [ROOT / "Makefile", *files("benchmarks")]
    named = {
        name for path in sources for name in re.findall(r"\bbenchmarks(?:\.\w+){2}", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    for name in named - {"benchmarks.suites.NAME"}:
        assert ROOT.joinpath(*name.split(".")).with_suffix(".py").exists(), name


def test_log_messages_that_fault_injection_looks_for_exist() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in files("src"))
    for message in (side_by_side.REPLACED, *chaos.NOT_RECOVERED):
        assert message in source, message


def test_every_suite_is_in_the_readme() -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for path in files("benchmarks/suites"):
        if path.stem != "__init__":
            assert f"`{path.stem}`" in text, path.stem
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for result in re.findall(r"\]\((results/[\w.]+)\)", text):
        assert (BENCHMARKS / result).exists(), result
