"""Tells glibc's malloc to keep freed memory (mallopt) for the next array of the same size.

By default glibc returns the end of its heap to the system as soon as a few arrays are freed at once. Whether arrays lie
at the end depends on all allocations since program start. A learner that frees and allocates the same megabyte for
every shard then spends a quarter of its time on page faults, in some runs and not in others
(docs/adr/0023-keep-freed-memory-with-mallopt.md).
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 64 << 20
"""Bytes at the end of the heap that malloc keeps (trim threshold)."""
_OWN_MAPPING = 32 << 20
"""Arrays of at least this size get their own mapping, which is returned when freed; glibc's maximum for the setting."""


def keep_freed_memory() -> None:
    """Configure this process. Does nothing if the environment configures malloc, or if malloc is not glibc's."""
    configured = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and not configured:
        mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
