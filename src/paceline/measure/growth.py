"""Workers whose memory grows and grows: an env that leaks, said long before the machine is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SETTLE_S = 10.0
"""What a process takes in its first moments is no growth."""
LEAST_MB, LEAST_RATIO = 200.0, 1.5
"""Growth that is worth a word: both must be reached, and twice the first for the next one."""


@dataclass(slots=True)
class _Known:
    first_seen_s: float
    base_s: float = 0.0
    base_mb: float = 0.0
    told_mb: float = 0.0


class MemoryGrowth:
    """Compares each process with what it took once it had settled."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def __call__(self, now_s: float, memory_mb: Mapping[int, float], names: Mapping[int, str]) -> list[str]:
        """What the user should know.

        Args:
            now_s: Time.
            memory_mb: By process.
            names: Of the processes to look at.
        """
        notes = []
        for pid, name in names.items():
            if (mb := memory_mb.get(pid)) is None:
                continue
            known = self._known.setdefault(pid, _Known(now_s))
            if now_s - known.first_seen_s < SETTLE_S:
                continue
            if not known.base_mb:
                known.base_s, known.base_mb = now_s, mb
                continue
            grown_mb, base_mb = mb - known.base_mb, known.base_mb
            if grown_mb >= max(LEAST_MB, 2 * known.told_mb) and mb >= LEAST_RATIO * base_mb:
                known.told_mb = grown_mb
                a_minute = 60.0 * grown_mb / max(1.0, now_s - known.base_s)
                notes.append(
                    f"{name}: its memory grew from {base_mb:,.0f} to {mb:,.0f} MB ({a_minute:,.0f} MB a minute). An "
                    "env may keep what it should let go of; lower --n-envs if memory runs short"
                )
        for pid in self._known.keys() - names.keys():
            del self._known[pid]
        return notes
