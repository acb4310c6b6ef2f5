from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from paceline.measure.table import print_table

HEAD = ("run", "state", "steps")
ROWS: list[list[str | Text]] = [["runs/[a]", Text("finished", style="green"), "1,000"], ["runs/b", "running", "20"]]


def test_a_pipe_gets_tabs() -> None:
    out = io.StringIO()
    print_table(Console(file=out), HEAD, ROWS, left=HEAD[:2])
    assert out.getvalue() == "run\tstate\tsteps\nruns/[a]\tfinished\t1,000\nruns/b\trunning\t20\n"


def test_a_terminal_gets_aligned_columns_with_their_styles() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, record=True, color_system="standard")
    print_table(console, HEAD, ROWS, left=HEAD[:2])
    assert "\x1b[32mfinished" in out.getvalue()
    assert [line.rstrip() for line in console.export_text().splitlines()] == [
        "run       state     steps",
        "runs/[a]  finished  1,000",
        "runs/b    running      20",
    ]


def test_words_are_continued_and_numbers_cut_on_a_narrow_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=16, record=True)
    print_table(console, ("run", "steps"), [["runs/a-long-name", "1,000"]], left=["run"])
    text = console.export_text()
    assert "".join(line[:9].strip() for line in text.splitlines()[1:]) == "runs/a-long-name"
