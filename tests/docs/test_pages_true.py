"""Compares tables and lists of the documentation with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import rooms

from paceline.cli import COMMANDS
from paceline.config.train_config import TrainConfig
from paceline.measure.record import TAGS
from paceline.train.callbacks import HOOKS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def _first_cells(page: Path) -> list[str]:
    """The texts in backquotes in the first column of a page's tables."""
    return re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_tag_table_has_every_tag_in_order() -> None:
    assert tuple(_first_cells(DOCS / "how-to" / "tensorboard-and-wandb.md")) == TAGS


def test_the_callback_table_has_every_hook_in_order() -> None:
    assert tuple(_first_cells(DOCS / "how-to" / "callbacks-and-early-stopping.md")) == HOOKS


def test_the_readme_lists_every_command() -> None:
    shown = {cell.split()[1] for cell in _first_cells(ROOT / "README.md") if cell.startswith("paceline ")}
    assert shown == set(COMMANDS)


def test_the_readme_has_few_figures_and_takes_them_from_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = re.findall(r"^\|[^|]*\| (\d[\d.]* ± [\d.]+) \| `(?:make|paceline) [^`]+` \|$", text, re.MULTILINE)
    assert figures
    assert text.count("±") == len(figures) <= 8, (
        "every figure is a row with its command; the rest is in docs/benchmarks.md"
    )
    results = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "benchmarks" / "results").glob("*.md"))
    assert not [figure for figure in figures if figure not in results]


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\(([^)]+\.md)\)", index)) == pages


def test_the_architecture_lists_every_room() -> None:
    source = ROOT / "src" / "paceline"
    rooms = {f"{path.parent.relative_to(source)}/" for path in source.glob("*/**/__init__.py")}
    shown = {cell for cell in _first_cells(DOCS / "explain" / "architecture.md") if cell.endswith("/")}
    assert shown == rooms


def test_the_fault_page_names_an_existing_test_for_every_row() -> None:
    text = (DOCS / "explain" / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 52))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    functions = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    for number, cell in rows:
        named = re.findall(r"`(test_\w+)`", cell)
        assert named, f"row {number} names no test"
        assert set(named) <= functions, f"row {number}: {set(named) - functions}"


ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\d,]+) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    "row", ROW.findall((DOCS / "how-to" / "choose-workers-and-envs.md").read_text(encoding="utf-8"))
)
def test_a_row_of_the_core_table_can_be_run(row: tuple[str, ...]) -> None:
    cores, workers, each, envs, steps = (int(cell.replace(",", "")) for cell in row)
    config = TrainConfig.from_flat(env="CartPole-v1", num_workers=workers, num_envs_per_worker=each)
    assert workers <= cores
    assert (config.n_envs, config.batch_steps) == (envs, steps)


def test_the_core_table_is_there() -> None:
    cores = [
        row[0] for row in ROW.findall((DOCS / "how-to" / "choose-workers-and-envs.md").read_text(encoding="utf-8"))
    ]
    assert cores == ["4", "8", "16", "32"]


def test_the_picture_of_the_rooms_is_drawn_from_the_source() -> None:
    assert rooms.PICTURE.read_text(encoding="utf-8") == rooms.picture(), "draw it again: make docs-picture"


def test_the_architecture_names_functions_that_exist() -> None:
    text = (DOCS / "explain" / "architecture.md").read_text(encoding="utf-8")
    walks = text[text.index("### When a worker dies") : text.index("## Memory")]
    named = set(re.findall(r"`([A-Z]\w+)\.(\w+)`", walks))
    assert len(named) >= 6
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for owner, method in named:
        body = re.search(rf"^class {owner}\b.*?(?=^class |\Z)", source, re.MULTILINE | re.DOTALL)
        assert body, owner
        assert re.search(rf"^    def {method}\(", body[0], re.MULTILINE), f"{owner}.{method}"
