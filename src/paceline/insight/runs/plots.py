"""Draws the panels of a comparison into a PNG, and has the parts that all pictures by matplotlib share.

Functions import matplotlib themselves, because it loads slowly.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from paceline.insight.runs.picture import DARK_INK, LIGHT, PHASE_COLOURS, WIDTHS, Axis, Bars, Chart, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 12.0, 9.4, 150
"""Size in inches, and dots per inch: 1,800 px wide, with text sizes that are readable at 1,200 px."""
INK, FAINT, GRID = "#222222", "#666666", "#E4E4E4"
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 10,
    "text.parse_math": False,  # a $ in the name of a folder is not mathtext
    "text.color": INK,
    "axes.edgecolor": "#AAAAAA",
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


def draw_png(picture: Picture, title: str, verdict: str) -> bytes:
    """The picture as the bytes of a PNG file."""

    def draw(figure: Figure) -> None:
        top = _head(figure, picture, title, verdict)
        grid = figure.add_gridspec(2, 2, left=0.055, right=0.975, bottom=0.105, top=top, hspace=0.42, wspace=0.15)
        places = [figure.add_subplot(grid[i // 2, i % 2]) for i in range(4)]
        for axes, chart in zip(places, picture.charts, strict=False):
            _draw_chart(axes, chart)
        _draw_bars(places[3], picture.bars, picture.names)
        figure.text(0.055, 0.03, textwrap.fill(picture.note, 78), color=FAINT, fontsize=8.5, va="center")

    return png(WIDTH, HEIGHT, title, draw)


def png(width: float, height: float, title: str, draw: Callable[[Figure], None]) -> bytes:
    """Draw a figure in the common style; returns the bytes of a PNG file. The caller's own settings do not change.

    Args:
        width: In inches.
        height: In inches.
        title: Stored in the file.
        draw: Draws into the empty figure.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]  # its keys are literals
        figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)  # sets the figure's canvas, so that no display is needed
        draw(figure)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Title": title})
    return out.getvalue()


def frame(axes: Axes, title: str, note: str, x_label: str, *, grid: Literal["x", "y"] = "y") -> None:
    """Draw title, note, grid lines and the label of the x axis; hide the top and right borders."""
    for text, above, size, weight, ink in ((title, 25, 12, "bold", INK), (note, 10, 9, "normal", FAINT)):
        axes.annotate(
            text, (0, 1), xycoords="axes fraction", xytext=(0, above), textcoords="offset points",
            fontsize=size, fontweight=weight, color=ink,
        )  # fmt: skip
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
    axes.tick_params(length=0, pad=5, labelsize=9.5)
    axes.grid(axis=grid, color=GRID, lw=0.8)
    axes.set_xlabel(x_label, color=FAINT, fontsize=9.5, labelpad=3)


def scale(axes: Axes, x: Axis, y: Axis) -> None:
    """Set limits and ticks of both axes."""
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.set_xticks([place for place, _ in x.ticks], [text for _, text in x.ticks])
    axes.set_yticks([place for place, _ in y.ticks], [text for _, text in y.ticks])


def _head(figure: Figure, picture: Picture, title: str, verdict: str) -> float:
    """Draw title, verdict and the common legend; returns the y position at which the panels begin."""
    from matplotlib.lines import Line2D

    line = 0.21 / HEIGHT
    y = 1 - 0.38 / HEIGHT
    figure.text(0.055, y, title, fontsize=15, fontweight="bold")
    y -= 1.25 * line
    wrapped = textwrap.wrap(verdict, 132)
    for text in wrapped:
        figure.text(0.055, y, text, fontsize=10.5)
        y -= line
    handles = [
        Line2D([], [], color=colour(i), lw=_width(i), ls=dash(i), label=name) for i, name in enumerate(picture.names)
    ]
    columns = min(4, len(handles))
    legend = figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.05, y + 0.6 * line), ncols=columns, frameon=False,
        fontsize=10.5, handlelength=1.8, columnspacing=2.0, borderaxespad=0.2,
    )  # fmt: skip
    for i, label in enumerate(legend.get_texts()):
        label.set_color(colour(i))
    rows = -(-len(handles) // columns)
    return y - (1.35 * rows + 2.6) * line


def _draw_chart(axes: Axes, chart: Chart) -> None:
    frame(axes, chart.title, chart.note, chart.x.label)
    scale(axes, chart.x, chart.y)
    if not chart.curves:
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", color=FAINT)
        return
    if chart.mark is not None:
        height, text = chart.mark
        axes.axhline(height, color=FAINT, lw=0.9, ls=(0, (2, 2)), zorder=2)
        axes.annotate(
            text, (0, height), xycoords=("axes fraction", "data"), xytext=(5, 3), textcoords="offset points",
            color=FAINT, fontsize=8.5,
        )  # fmt: skip
    for side, curve in chart.curves.items():
        ink = colour(side)
        if curve.n > 1:
            axes.fill_between(curve.x, curve.low, curve.high, color=ink, alpha=0.16, lw=0)
        axes.plot(curve.x, curve.mean, color=ink, lw=_width(side), ls=dash(side))


def _draw_bars(axes: Axes, bars: Bars, names: tuple[str, ...]) -> None:
    from matplotlib.patches import Patch

    frame(axes, bars.title, bars.note, bars.x.label, grid="x")
    axes.spines["left"].set_visible(False)
    axes.set_xticks([place for place, _ in bars.x.ticks], [text for _, text in bars.x.ticks])
    axes.set_yticks([])
    axes.set_xlim(0, bars.x.high * 1.13)
    axes.set_axisbelow(True)
    axes.set_ylim(len(bars.bars) - 0.42, -0.62)
    if not bars.bars:
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", color=FAINT)
        return
    for y, bar in enumerate(bars.bars):
        axes.text(0, y - 0.29, names[bar.side] + bar.whose, color=colour(bar.side), va="bottom", fontsize=10)
        for piece in bar.pieces:
            axes.barh(y, piece.length, 0.5, piece.begin, color=PHASE_COLOURS[piece.phase], edgecolor="white", lw=1.2)
            if (text := piece_text(piece.phase, piece.share, piece.length / bars.x.high)) is not None:
                ink = INK if piece.phase in DARK_INK else "white"
                middle = piece.begin + piece.length / 2
                axes.text(middle, y, text, ha="center", va="center", color=ink, fontsize=9)
        end = bar.pieces[-1].begin + bar.pieces[-1].length if bar.pieces else 0.0
        axes.annotate(bar.total, (end, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9.5)
    handles = [Patch(color=PHASE_COLOURS[phase], label=phase) for phase in bars.phases]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=min(7, len(handles)), frameon=False,
        fontsize=9, handlelength=0.9, handleheight=0.9, columnspacing=1.3, handletextpad=0.45, labelcolor=FAINT,
    )  # fmt: skip


def piece_text(phase: str, share: float, width: float) -> str | None:
    """The label that fits into a piece of a bar: name and share, the share alone, or None.

    Args:
        phase: Name of the phase.
        share: Share of the phase in the time.
        width: Width of the piece as a fraction of the axis.
    """
    full = f"{phase} {share:.0%}"
    return full if width > 0.018 * (len(full) + 1) else f"{share:.0%}" if width > 0.065 else None


def colour(side: int) -> str:
    """Colour of a side."""
    return LIGHT[side % len(LIGHT)]


def _width(side: int) -> float:
    return WIDTHS[min(side, 1)]


def dash(side: int) -> str:
    """Line style of a side: dashed where colours repeat."""
    return "-" if side < len(LIGHT) else "--"
