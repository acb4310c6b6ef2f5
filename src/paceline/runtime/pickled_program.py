"""Pickles what workers run, and names the attribute that cannot be pickled if that fails."""

from __future__ import annotations

import types
from typing import Any

import cloudpickle

from paceline.errors import ConfigError


def pack(program: object, otherwise: str = "--num-workers 0") -> bytes:
    """Return a `Program`, or the `Transfer` that builds one on a node, as bytes.

    Args:
        program: What to pickle.
        otherwise: Flags that avoid pickling, for the error text.

    Raises:
        ConfigError: Part of the program cannot be pickled; the text names the attribute that holds it.
    """
    try:
        packed: bytes = cloudpickle.dumps(program)
    except Exception as error:
        culprit = _unpicklable(program)
        raise ConfigError(
            f"{culprit}: cannot be sent to workers ({type(error).__name__}: {error}). "
            f"Create it inside the env function instead of capturing it, or use {otherwise}."
        ) from error
    return packed


def _unpicklable(value: Any, path: str = "program", depth: int = 0) -> str:
    """Return the path to the innermost first part of `value` that cannot be pickled, and its type."""
    parts: dict[str, Any] = {}
    if isinstance(value, dict):
        parts = {f"[{key!r}]": item for key, item in value.items()}
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        parts = {
            f" captured {name!r}": cell.cell_contents for name, cell in zip(names, value.__closure__ or (), strict=True)
        }
        # cloudpickle also sends the globals that a script's functions use.
        used = value.__code__.co_names
        parts |= {f" global {name!r}": value.__globals__[name] for name in used if name in value.__globals__}
    elif hasattr(value, "__dict__"):
        parts = {f".{key}": item for key, item in vars(value).items()}
    elif hasattr(value, "__slots__"):
        parts = {f".{key}": getattr(value, key) for key in value.__slots__ if hasattr(value, key)}
    if depth < 6:
        for suffix, part in parts.items():
            try:
                cloudpickle.dumps(part)
            except Exception:
                return _unpicklable(part, path + suffix, depth + 1)
    return f"{path} ({type(value).__name__})"
