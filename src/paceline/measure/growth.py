"""Warns of processes whose memory keeps growing, such as workers with a leaking env, before the machine runs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SETTLE_S = 10.0
"""Memory that a process takes in its first seconds does not count as growth."""
LEAST_MB, LEAST_RATIO = 200.0, 1.5
"""A warning needs growth by this many MB and by this factor. The next warning needs twice the growth of the last."""


@dataclass(slots=True)
class _Baseline:
    first_seen_s: float
    base_s: float = 0.0
    base_mb: float = 0.0
    warned_mb: float = 0.0


class MemoryGrowth:
    """Compares the memory of each process with its memory after its first seconds."""

    def __init__(self) -> None:
        self._known: dict[int, _Baseline] = {}

    def __call__(self, now_s: float, memory_mb: Mapping[int, float], names: Mapping[int, str]) -> list[str]:
        """Return the warnings that are due.

        Args:
            now_s: Current time in seconds.
            memory_mb: Memory by process id.
            names: Names of the processes to check, by process id.
        """
        notes = []
        for pid, name in names.items():
            if (mb := memory_mb.get(pid)) is None:
                continue
            known = self._known.setdefault(pid, _Baseline(now_s))
            if now_s - known.first_seen_s < SETTLE_S:
                continue
            if not known.base_mb:
                known.base_s, known.base_mb = now_s, mb
                continue
            grown_mb, base_mb = mb - known.base_mb, known.base_mb
            if grown_mb >= max(LEAST_MB, 2 * known.warned_mb) and mb >= LEAST_RATIO * base_mb:
                known.warned_mb = grown_mb
                a_minute = 60.0 * grown_mb / max(1.0, now_s - known.base_s)
                notes.append(
                    f"{name}: its memory (PSS) grew from {base_mb:,.0f} to {mb:,.0f} MB, {a_minute:,.0f} MB a minute. "
                    "An env may leak memory; lower --n-envs if memory runs short"
                )
        for pid in self._known.keys() - names.keys():
            del self._known[pid]
        return notes
