"""Reads an `EpisodeHistory`."""

from __future__ import annotations

from paceline.collect.history import EpisodeHistory
from paceline.envs.block import History


def histories_now(history: EpisodeHistory) -> list[History]:
    """The history of each env up to now."""
    history.mark()
    return history.marked()
