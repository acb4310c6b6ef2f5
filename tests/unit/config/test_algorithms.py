"""The table of algorithms."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.config.algorithms import ALGORITHMS, nearest_algorithm


@pytest.mark.parametrize(
    ("typed", "hint"), [("imapla", "Did you mean 'impala'?"), ("sac", "Known: ppo, impala, appo, a3c, dqn.")]
)
def test_the_hint_about_an_unknown_name(typed: str, hint: str) -> None:
    assert nearest_algorithm(typed) == hint


def test_the_table_loads_without_torch() -> None:
    code = "import sys; import paceline.config.algorithms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_every_entry_names_a_module_and_a_name() -> None:
    assert all(entry.algorithm.count(":") == 1 for entry in ALGORITHMS.values())
