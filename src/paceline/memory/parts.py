"""State of several parts in one dict of arrays, as checkpoints hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def part(state: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """What stands under a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def under(prefix: str, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The inverse: everything put under a prefix."""
    return {prefix + key: value for key, value in state.items()}
