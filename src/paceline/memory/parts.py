"""Prefixes for nested state in one flat dict of arrays, as checkpoints store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def part(state: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the entries under a prefix, with the prefix removed."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def under(prefix: str, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inverse of `part`: add a prefix to all keys."""
    return {prefix + key: value for key, value in state.items()}
