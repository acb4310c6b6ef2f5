"""Prints a table of text: aligned on a terminal, separated by tabs elsewhere, for other programs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(
    console: Console, head: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: Collection[str]
) -> None:
    """Print a table.

    Args:
        console: Where to print.
        head: Names of the columns.
        rows: Cells; a cell that is a `Text` keeps its style on a terminal.
        left: Columns of words: aligned to the left, and continued on the next line if the terminal is narrow.
    """
    if not console.is_terminal:
        # Written without rich, which would expand tabs to spaces.
        console.file.writelines("\t".join(map(str, row)) + "\n" for row in (head, *rows))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in head:
        words = name in left
        table.add_column(name, justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console.print(table)
