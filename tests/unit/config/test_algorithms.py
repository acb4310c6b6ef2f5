"""The table of algorithms."""

from __future__ import annotations

import subprocess
import sys

from paceline.config.algorithms import ALGORITHMS


def test_the_table_loads_without_torch() -> None:
    code = "import sys; import paceline.config.algorithms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_every_entry_names_a_module_and_a_name() -> None:
    assert all(entry.algorithm.count(":") == 1 for entry in ALGORITHMS.values())
