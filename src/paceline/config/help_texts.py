"""Help texts of settings: the docstring under each field of a dataclass."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import is_dataclass
from functools import cache
from types import ModuleType
from typing import Any


def field_help(cls: type[Any]) -> dict[str, str]:
    """The docstring under each field of a dataclass, on one line."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, cls.__mro__[1:]):
        found |= field_help(base)
    name = ""
    for node in _classes(sys.modules[cls.__module__])[cls.__name__].body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                continue
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(text.split())
        name = ""
    return found


@cache
def _classes(module: ModuleType) -> dict[str, ast.ClassDef]:
    """The classes of a module by name. Cached: `inspect.getsource` would parse the whole file for each class."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
