"""Has the C library keep memory that was freed, for the next array of that size.

By default glibc gives the end of its heap back to the system as soon as a few arrays are freed at once, and whether
they lie at the end depends on what else was allocated since the program started. A learner that frees and wants the
same megabyte for every shard then spends a quarter of its time on fresh pages: in some runs, and not in the next
(docs/adr/0023-freed-memory-is-kept.md).
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 64 << 20
"""Bytes at the end of the heap that are kept."""
_APART = 32 << 20
"""Arrays from this size on have pages of their own, which go back at once; glibc allows no more."""


def keep_freed_memory() -> None:
    """From now on, in this process. Nothing happens where malloc was set up by the environment, or is not glibc's."""
    said = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and not said:
        mallopt(_M_MMAP_THRESHOLD, _APART)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
