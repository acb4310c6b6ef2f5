"""Where progress is drawn: a terminal, or one output of a Jupyter cell that updates in place."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

NOTEBOOK_WIDTH = 100
"""Characters per line in a notebook."""
HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


class TerminalScreen:
    """A terminal that understands cursor movements.

    Args:
        console: Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._content: RenderableType = ""

    @property
    def width(self) -> int:
        """Characters per line, which change with the window."""
        return self._console.width

    def start(self) -> None:
        """Hide the cursor."""
        self._live.start()

    def say(self, lines: Sequence[str], *, wrap: bool = True) -> None:
        """Print lines above the part that is redrawn; a command must not be wrapped, so that it can be copied."""
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=not wrap)

    def draw(self, content: RenderableType) -> None:
        """Draw in place. The cursor waits on a line of its own, so that the `^C` of a terminal wraps no full line."""
        self._content = content
        self._live.update(Group(content, Text()), refresh=True)

    def stop(self, *, keep: bool) -> None:
        """Show the cursor again."""
        self._live.update(self._content)
        self._live.transient = not keep
        self._live.stop()


class NotebookScreen:
    """One output of the running Jupyter cell. Needs no widgets, so that it stays in the saved notebook."""

    width = NOTEBOOK_WIDTH

    def __init__(self) -> None:
        self._display = importlib.import_module("IPython.display").display
        self._handle: Any = None
        self._lines: list[str] = []
        self._content: RenderableType | None = None

    def start(self) -> None:
        """Nothing to do: the output appears with its first content."""

    def say(self, lines: Sequence[str], *, wrap: bool = True) -> None:  # noqa: ARG002 - long lines scroll
        """Add lines above the part that is redrawn."""
        if lines:
            self._lines += lines
            self._show()

    def draw(self, content: RenderableType) -> None:
        """Redraw the output."""
        self._content = content
        self._show()

    def stop(self, *, keep: bool) -> None:
        """Draw for the last time."""
        if not keep and self._content is not None:
            self._content = None
            self._show()

    def _show(self) -> None:
        # A console of its own: it must write nowhere else, and it must not take itself for a notebook.
        console = Console(
            record=True, file=io.StringIO(), width=self.width, force_jupyter=False, force_terminal=True, highlight=False
        )
        for line in self._lines:
            console.print(line, markup=False, soft_wrap=True)
        if self._content is not None:
            console.print(self._content)
        data = {
            "text/plain": console.export_text(clear=False),
            "text/html": console.export_html(inline_styles=True, code_format=HTML),
        }
        if not data["text/plain"]:
            return
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


Screen: TypeAlias = TerminalScreen | NotebookScreen
"""Lines that stay, and below them one part that is redrawn. Used by the display thread only: `start`, any number of
`say` and `draw`, and `stop`, which keeps or removes the part that is redrawn."""


def screen_for(console: Console, live: bool | None) -> Screen | None:
    """The screen of a console; None if it can only print one line after another.

    Args:
        console: Where to draw.
        live: Whether the console is a terminal that can redraw; None to find out.
    """
    if live is None and console.is_jupyter:
        return NotebookScreen()
    if live is None:
        live = console.is_terminal and not console.is_dumb_terminal and console.encoding == "utf-8"
    return TerminalScreen(console) if live else None
