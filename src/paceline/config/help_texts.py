"""Help texts of settings: the docstring under each field of a dataclass."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any


def field_help(cls: type[Any]) -> dict[str, str]:
    """The docstring under each field of a dataclass, on one line."""
    found: dict[str, str] = {}
    for base in cls.__mro__[1:-1]:
        found |= field_help(base)
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    name = ""
    for node in getattr(body, "body", []):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                continue
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(text.split())
        name = ""
    return found
