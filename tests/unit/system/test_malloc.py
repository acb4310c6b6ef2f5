"""malloc keeps freed memory for the next array."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc only")

PROGRAM = """
import resource, sys
import numpy as np
from paceline.system.malloc import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def use():
    arrays = [np.ones(300_000, np.uint8) for _ in range(20)]  # all freed at once, at the end of the heap

for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, **environment: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    return int(subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True).stdout)


def test_freed_memory_is_reused_without_page_faults() -> None:
    pages = 10 * 20 * 300_000 // 4096
    assert faults("as it is") > pages / 2, "what it is for: otherwise this test shows nothing"
    assert faults("kept") < pages / 20


def test_malloc_settings_of_the_environment_are_kept() -> None:
    own = {"MALLOC_TRIM_THRESHOLD_": "100000", "MALLOC_MMAP_THRESHOLD_": "1000000"}
    assert faults("kept", **own) > 10 * 20 * 300_000 // 4096 / 2
