"""The progress bar of `learn(progress_bar=True)`: one line. A pure function."""

from __future__ import annotations

from rich.text import Text

from paceline.measure.panel import amount, bar, duration, number
from paceline.measure.view import View

BAR_WIDTH = 30


def bar_line(view: View, width: int) -> Text:
    """Return the state of a run as one line with a bar, at most `width` wide."""
    if view.newest is None:
        return Text(f"starting, {duration(view.wall_s)}", style="dim", no_wrap=True, overflow="ellipsis")
    parts = [f"{view.fraction:4.0%}", amount(view, of="/")]
    time = duration(view.wall_s)
    parts.append(time if view.left_s is None else f"{time}, {duration(view.left_s)} left")
    if view.fps is not None:
        parts.append(f"{view.fps:,.0f} steps/s")
    if view.newest.ep_rew_mean is not None:
        parts.append(f"return {number(view.newest.ep_rew_mean)}")
    tail = "  ".join(parts)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(bar(view.fraction, max(8, min(BAR_WIDTH, width - len(tail) - 1))))
    line.append(f" {tail}")
    line.truncate(width, overflow="ellipsis")
    return line
