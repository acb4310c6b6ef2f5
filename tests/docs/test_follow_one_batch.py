"""docs/explain/follow-one-batch.md stays a short walk, and tells the truth about its length."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explain" / "follow-one-batch.md"
ROW = re.compile(r"^\|\s*\d+\s*\|\s*\[[^\]]+\]\(([^)]+)\)\s*\|\s*([\d,]+)\s*\|", re.MULTILINE)
TOTAL = re.compile(r"^\|\s*\|\s*total\s*\|\s*([\d,]+)\s*\|", re.MULTILINE)

MAX_FILES = 9
MAX_LINES = 1500
TOLERANCE = 0.10
"""How far a number in the table may be from the truth, so that not every small change has to touch the page."""


def _table() -> dict[Path, int]:
    """The files of the walk, with the lines that the page claims."""
    return {
        (PAGE.parent / link).resolve(): int(lines.replace(",", ""))
        for link, lines in ROW.findall(PAGE.read_text(encoding="utf-8"))
    }


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def test_every_file_of_the_walk_exists() -> None:
    table = _table()
    assert table
    missing = [str(path) for path in table if not path.is_file()]
    assert not missing


def test_the_walk_begins_at_env_step_and_ends_at_the_optimiser_step() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in _table())
    assert "env.step" in source
    assert "_fused_adam_(" in source


def test_the_walk_is_short() -> None:
    table = _table()
    assert len(table) <= MAX_FILES
    assert sum(map(_lines, table)) <= MAX_LINES


def test_the_numbers_in_the_table_are_true() -> None:
    table = _table()
    total = TOTAL.search(PAGE.read_text(encoding="utf-8"))
    assert total is not None
    claimed = {path.name: (lines, _lines(path)) for path, lines in table.items()}
    claimed["total"] = (int(total[1].replace(",", "")), sum(map(_lines, table)))
    wrong = {name: pair for name, pair in claimed.items() if abs(pair[0] - pair[1]) > TOLERANCE * pair[1]}
    assert not wrong, f"(claimed, true): {wrong}"
    assert claimed["total"][0] == sum(table.values())
