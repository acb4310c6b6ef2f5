"""Draws the panels of a comparison as inline SVG for the HTML page. `plots` draws the same panels into the PNG.

The page cannot show the PNG instead, for four reasons:

- Dark mode: lines, grid and text take their colours from the style sheet of `page`. The PNG has a white background.
- Phones: at 400 px the panels stand below each other and the style sheet enlarges their text. The text of the PNG,
  which has all four panels side by side, is about 3 px high at that width.
- Hover: lines show the name of their side, and pieces of a bar their phase, share and time.
- Text: it can be selected, searched and read by a screen reader.

matplotlib's own SVG output has fixed colours and text positions, so it would not change with the style sheet either.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from paceline.insight.runs.curves import Array
from paceline.insight.runs.picture import LIGHT, WIDTHS, Bars, Chart, Piece

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 10.0, 10.0, 40.0
"""Margins around the plotting area, wide enough for the larger text on narrow screens."""
BAR, ROW = 40.0, 76.0
"""Height of a bar, and of a bar with its name."""


def chart_svg(chart: Chart, names: tuple[str, ...]) -> str:
    """Draw a chart: curves with their bands."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(value: float | Array) -> Array:
        return LEFT + chart.x.place(value) * (right - LEFT)

    def up(value: float | Array) -> Array:
        return bottom - chart.y.place(value) * (bottom - TOP)

    clip = f"area-{chart.key}"
    parts = [
        f'<clipPath id="{clip}"><rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/></clipPath>'
    ]
    for place, text in chart.y.ticks:
        y = float(up(place))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(_text(LEFT - 6, y + 4, text, "tick end"))
    parts += _x_axis(((float(across(place)), text) for place, text in chart.x.ticks), bottom, right, chart.x.label)
    if not chart.curves:
        parts.append(_text((LEFT + right) / 2, (TOP + bottom) / 2, "nothing was recorded", "tick mid"))
    elif chart.mark is not None:
        y = float(up(chart.mark[0]))
        parts.append(f'<path class="mark" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(_text(LEFT + 5, y - 4, chart.mark[1], "tick"))
    bands, curves = [], []  # all bands are drawn before the first line, so that no band covers a line
    for side, curve in chart.curves.items():
        x = across(curve.x)
        if curve.n > 1:
            edge = np.concatenate([x, x[::-1]]), np.concatenate([up(curve.high), up(curve.low)[::-1]])
            bands.append(f'<path class="band side{side % len(LIGHT)}" d="{_path(*edge)}Z"/>')
        dash = ' stroke-dasharray="5 3"' if side >= len(LIGHT) else ""
        width = WIDTHS[min(side, 1)]
        curves.append(
            f'<path class="line side{side % len(LIGHT)}" stroke-width="{width}"{dash} d="{_path(x, up(curve.mean))}">'
            f"<title>{escape(names[side])}</title></path>"
        )
    parts.append(f'<g clip-path="url(#{clip})">{"".join(bands + curves)}</g>')
    return _svg(HEIGHT, chart.key, f"{chart.title}, {chart.note}", parts)


def bars_svg(bars: Bars, names: tuple[str, ...]) -> str:
    """Draw stacked bars, with the name of the side above its bar."""
    left, right = 6.0, WIDTH - 66.0  # leaves room for the total to the right of the longest bar
    height = max(HEIGHT, TOP + ROW * len(bars.bars) + BOTTOM + 6)
    bottom = height - BOTTOM
    gap = (bottom - TOP) / max(1, len(bars.bars))

    def across(value: float) -> float:
        return float(left + bars.x.place(value) * (right - left))

    parts = [f'<path class="grid" d="M{across(place):.1f} {TOP}V{bottom}"/>' for place, _ in bars.x.ticks]
    parts += _x_axis(((across(place), text) for place, text in bars.x.ticks), bottom, WIDTH - RIGHT, bars.x.label, left)
    if not bars.bars:
        parts.append(_text(WIDTH / 2, (TOP + bottom) / 2, "nothing was recorded", "tick mid"))
    for row, bar in enumerate(bars.bars):
        top = TOP + gap * row + (gap - BAR) / 2 + 8
        parts.append(_text(left, top - 7, names[bar.side] + bar.whose, f"name side{bar.side % len(LIGHT)}"))
        end = left
        for piece in bar.pieces:
            begin, end = across(piece.begin), across(piece.begin + piece.length)
            parts.append(_piece(piece, begin, end, top))
        parts.append(_text(end + 6, top + BAR / 2 + 4, bar.total, "total"))
    return _svg(height, bars.key, f"{bars.title}, {bars.note}", parts)


def _piece(piece: Piece, begin: float, end: float, top: float) -> str:
    hover = f"{piece.phase}: {piece.share:.1%}, {piece.length:,.3g} µs per step"
    width = end - begin
    shape = (
        f'<rect class="phase-{piece.phase}" x="{begin:.1f}" y="{top:.1f}" width="{max(0.2, width - 1):.1f}" '
        f'height="{BAR}"><title>{hover}</title></rect>'
    )
    full, short = f"{piece.phase} {piece.share:.0%}", f"{piece.share:.0%}"
    text = full if width > 8.2 * len(full) else short if width > 10 * len(short) else None
    if text is None:
        return shape
    return shape + _text((begin + end) / 2, top + BAR / 2 + 4, text, f"in mid on-{piece.phase}")


def _x_axis(
    ticks: Iterable[tuple[float, str]], bottom: float, right: float, label: str, left: float = LEFT
) -> list[str]:
    parts = [f'<path class="axis" d="M{left} {bottom}H{right}"/>']
    for x, text in ticks:
        # The outermost labels are aligned inwards, because they would be clipped otherwise.
        where = "end" if x > WIDTH - 20 else "start" if x < 12 else "mid"
        parts.append(_text(x, bottom + 16, text, f"tick {where}"))
    return [*parts, _text((left + right) / 2, bottom + 34, label, "tick mid")]


def _path(x: Array, y: Array) -> str:
    # Values far outside the clipped area are not visible, and some browsers fail to draw paths with huge numbers.
    y = np.clip(y, -HEIGHT, 2 * HEIGHT)
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(height: float, key: str, about: str, parts: list[str]) -> str:
    return (
        f'<svg id="{key}" viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(about)}">'
        + "".join(parts)
        + "</svg>"
    )
