"""Where the benchmarks find and store files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The project's root: every benchmark process starts here, so that `import benchmarks` works in any interpreter."""
SOURCE = ROOT / "src"
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
LOGS = BENCHMARKS / ".logs"
"""Logs of child processes, and results of runs that must not be published. Git ignores this folder."""
VENVS = BENCHMARKS / ".venvs"
PEERS = BENCHMARKS / "peers"
