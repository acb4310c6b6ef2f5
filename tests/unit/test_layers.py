"""Imports point down only, and modules import their own package at the top."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[2] / "src"

LAYERS: list[set[str]] = [
    {"errors"},
    {"moved", "system", "spec"},
    {"batch", "ops", "measure"},
    {"config"},
    {"memory", "nets"},
    {"envs", "runtime"},
    {"collect", "algos"},
    {"vector", "inference"},
    {"train"},
    {"insight"},
    {"domains"},
    {"integrations"},
    {"cli"},
]
"""Bottom first. Rooms of one layer do not know each other."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
TOP = {"", "__main__"}
"""The package's own `__init__` and `__main__`: above everything."""
LAZY = {"cli", "domains", ""}
"""May import inside functions: their commands answer `--help` without loading torch."""


class Import(NamedTuple):
    module: str
    line: int
    nested: bool
    """Inside a function."""


def room_of(module: str) -> str:
    """The room of a dotted name; empty for the package itself."""
    return [*module.split("."), ""][1]


def imports_of(source: str, package: str) -> Iterator[Import]:
    """The imports of our own package in `source`, relative ones made absolute from `package`."""

    def visit(node: ast.AST, nested: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = nested or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            match child:
                case ast.Import(names=names):
                    yield from (Import(alias.name, child.lineno, nested) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=0):
                    # `from paceline import cli` imports a room as well as `import paceline.cli` does.
                    name = module or ""
                    own = [f"{name}.{alias.name}" for alias in names] if name == "paceline" else [name]
                    yield from (Import(each, child.lineno, nested) for each in own)
                case ast.ImportFrom(module=module, level=level):
                    base = package.split(".")[: len(package.split(".")) - level + 1]
                    yield Import(".".join([*base, *([module] if module else [])]), child.lineno, nested)
            yield from visit(child, inner)

    return (found for found in visit(ast.parse(source), False) if found.module.split(".")[0] == "paceline")


def faults_of(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What `module` may not import, in words."""
    room = room_of(module)
    package = module if is_package else module.rpartition(".")[0]
    faults = []
    for found in imports_of(source, package):
        target = room_of(found.module)
        if found.nested and room not in LAZY:
            faults.append(f"{module}:{found.line} imports {found.module} inside a function")
        if room in TOP or room == target:
            continue
        if target not in LEVEL:
            faults.append(f"{module}:{found.line} imports {found.module}, which is in no layer")
        elif LEVEL[target] >= LEVEL[room]:
            faults.append(f"{module}:{found.line} imports {found.module}, which is not below {room}")
    return faults


def modules_of_the_source() -> list[tuple[Path, str]]:
    paths = sorted((SRC / "paceline").rglob("*.py"))
    return [(path, ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")) for path in paths]


@pytest.mark.parametrize(("path", "module"), [pytest.param(*each, id=each[1]) for each in modules_of_the_source()])
def test_module_imports_only_downward(path: Path, module: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert faults_of(source, module, is_package=path.name == "__init__.py") == []


def test_every_room_has_a_layer() -> None:
    rooms = {room_of(module) for _, module in modules_of_the_source()}
    assert rooms - TOP <= LEVEL.keys()


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from paceline.train import build", "paceline.algos.ppo"),
        ("import paceline.inference.server", "paceline.algos.ppo"),
        ("from paceline import cli", "paceline.train.loop"),
        ("from ..train.config import TrainConfig", "paceline.envs.make"),
        ("def f():\n    from paceline.errors import ConfigError", "paceline.envs.make"),
        ("from paceline.nowhere import x", "paceline.envs.make"),
        ("if True:\n    import paceline.nets.mlp", "paceline.memory.shared"),
    ],
)
def test_the_check_finds_what_it_looks_for(source: str, module: str) -> None:
    assert len(faults_of(source, module)) == 1


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from paceline.errors import ConfigError", "paceline.spec"),
        ("from paceline.config.ppo_settings import PPOConfig", "paceline.config.train_config"),
        ("from paceline.config.coerce import coerce", "paceline.config.train_config"),
        ("from . import coerce", "paceline.config.train_config"),
        ("def f():\n    from paceline.train.run import train", "paceline.cli.train"),
        ("def f():\n    import torch", "paceline.measure.record"),
    ],
)
def test_the_check_allows_what_the_design_allows(source: str, module: str) -> None:
    assert faults_of(source, module) == []
