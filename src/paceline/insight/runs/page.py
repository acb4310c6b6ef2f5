"""Writes a comparison as one self-contained HTML file: no scripts, light and dark mode, readable on a phone."""

from __future__ import annotations

from html import escape
from itertools import groupby

from paceline.insight.runs.compare import MISSING, Comparison
from paceline.insight.runs.picture import DARK, DARK_INK, LIGHT, PHASE_COLOURS, Bars, Chart, Picture
from paceline.insight.runs.report import Section, sections, title_of
from paceline.insight.runs.svg import bars_svg, chart_svg
from paceline.insight.runs.verdict import subject

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #ffffff; --ink: #1d2126; --faint: #5d656e;
  --rule: #e3e6ea; --soft: #f5f6f8; --warn: #fff6dd; --warn-edge: #e0b33a; %(light)s }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --card: #1a1e22; --ink: #e6e9ec; --faint: #9aa4ae; --rule: #2d333a; --soft: #1f2429;
    --warn: #2f2810; --warn-edge: #a5821f; %(dark)s } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0; }
.verdict { font-size: 1.1rem; margin: 0 0 20px; max-width: 62em; overflow-wrap: anywhere; }
.remarks { background: var(--warn); border-left: 4px solid var(--warn-edge); border-radius: 4px; margin: 0 0 20px;
  padding: 10px 14px 10px 32px; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 12px; margin: 0 0 22px; padding: 0; }
.facts div { background: var(--soft); border-radius: 8px; padding: 10px 14px; }
.facts dt, .facts dd small { color: var(--faint); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.3; }
.facts dd small { display: block; font-weight: 400; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; list-style: none; margin: 0 0 12px; padding: 0; }
.legend li { display: flex; align-items: center; gap: 8px; overflow-wrap: anywhere; }
.legend i { flex: none; width: 22px; height: 0; border-top: 4px solid; border-radius: 2px; }
.legend i.again { border-top-style: dashed; }
.legend .box { width: 12px; height: 12px; border: 0; }
.small { font-size: .85rem; color: var(--faint); margin: 4px 0 0; }
.panels { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 14px 14px 10px; }
figcaption p { margin: 0 0 6px; color: var(--faint); font-size: .85rem; }
svg { display: block; width: 100%%; height: auto; }
svg text { font: 10.5px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
svg .tick { fill: var(--faint); }
svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--faint); stroke-opacity: .6; }
svg .mark { stroke: var(--faint); stroke-dasharray: 2 3; }
svg .line { fill: none; stroke: currentColor; stroke-linejoin: round; stroke-linecap: round; }
svg .band { fill: currentColor; fill-opacity: .17; } svg .name { fill: currentColor; font-size: 11.5px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%%; font-variant-numeric: tabular-nums; margin: 10px 0 0; }
th, td { text-align: right; padding: 5px 0 5px 14px; border-bottom: 1px solid var(--rule); font-weight: 400; }
th:first-child { text-align: left; padding-left: 0; color: var(--faint); }
thead th { font-weight: 600; overflow-wrap: anywhere; vertical-align: bottom; }
section { margin-top: 34px; }
h3 { font-size: 1rem; margin: 16px 0 4px; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); border-radius: 6px; margin: 4px 0;
  padding: 8px 12px; font-size: .85rem; }
@media (max-width: 760px) { .panels { grid-template-columns: minmax(0, 1fr); gap: 14px; }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); } main { padding: 18px 14px 36px; }
  th, td { padding-left: 10px; } }
@media (max-width: 520px) { svg text { font-size: 13px; } svg .name { font-size: 14px; } table { font-size: .85rem; }
  svg .in { font-size: 12px; } .verdict { font-size: 1rem; } figure { padding: 12px 8px 8px; } }
%(classes)s
"""


def make_page(comparison: Comparison, picture: Picture) -> str:
    """The content of the HTML file."""
    title = escape(title_of(comparison))
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in comparison.remarks)
    phases = "".join(f'<li><i class="box phase-{name}"></i>{name}</li>' for name in picture.bars.phases)
    figures = [_figure(chart, chart_svg(chart, picture.names)) for chart in picture.charts]
    figures.append(
        _figure(picture.bars, bars_svg(picture.bars, picture.names), f'<ul class="legend small">{phases}</ul>')
    )
    sides = "".join(
        f'<li class="side{i % len(LIGHT)}"><i{" class=again" if i >= len(LIGHT) else ""}></i>{escape(name)}</li>'
        for i, name in enumerate(picture.names)
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # An empty icon, because browsers would request one otherwise.
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{_style()}</style></head><body><main>',
        f'<h1>{title}</h1><p class="verdict">{escape(comparison.verdict)}</p>',
        f'<ul class="remarks">{remarks}</ul>' if remarks else "",
        _facts(comparison),
        f'<ul class="legend">{sides}</ul><div class="panels">{"".join(figures)}</div>',
        f'<p class="small">{escape(picture.note)}</p>',
        f"<section><h2>The numbers</h2>{_table(comparison)}</section>",
        *(_section(section) for section in sections(comparison)),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _style() -> str:
    """The style sheet, with the colours of sides and phases filled in."""
    classes = [f".side{i} {{ color: var(--side{i}); }}" for i in range(len(LIGHT))]
    for name, colour in PHASE_COLOURS.items():
        ink = "#222222" if name in DARK_INK else "#ffffff"
        classes.append(f".phase-{name} {{ fill: {colour}; background: {colour}; }} svg .on-{name} {{ fill: {ink}; }}")
    return STYLE % {
        "light": " ".join(f"--side{i}: {colour};" for i, colour in enumerate(LIGHT)),
        "dark": " ".join(f"--side{i}: {colour};" for i, colour in enumerate(DARK)),
        "classes": "\n".join(classes),
    }


def _figure(panel: Chart | Bars, drawing: str, below: str = "") -> str:
    head = f"<h2>{escape(panel.title)}</h2><p>{escape(panel.note)}</p>"
    return f"<figure><figcaption>{head}</figcaption>{drawing}{below}</figure>"


def _facts(comparison: Comparison) -> str:
    """Tiles with the headline numbers of the side that the verdict is about, beside those of the first side."""
    side = comparison.sides[0] if comparison.one_config else subject(comparison.sides)
    if side is None:
        return ""
    at = comparison.sides.index(side)
    tiles = []
    rank = {"speed-up": 0, "steps/s": 1}
    for row in sorted(comparison.rows, key=lambda row: rank.get(row.label, 2)):
        wanted = row.label in ("speed-up", "steps/s", "final evaluation") or row.label.startswith("time to ")
        if wanted and row.cells[at] != MISSING:
            value = _mean(row.cells[at])
            against = (
                row.cells[at].removeprefix(value).strip()
                if comparison.one_config
                else f"{comparison.names[at]} against {comparison.names[0]}"
                if row.label == "speed-up"
                else f"against {_mean(row.cells[0])}"
            )
            tiles.append(
                f"<div><dt>{escape(row.label)}</dt><dd>{escape(value)}<small>{escape(against)}</small></dd></div>"
            )
    return f'<dl class="facts">{"".join(tiles)}</dl>' if tiles else ""


def _mean(cell: str) -> str:
    """The text of a table cell without its interval."""
    return cell.split(" ± ")[0].split(" (")[0]


def _table(comparison: Comparison) -> str:
    head = "".join(
        f'<th scope="col" class="side{i % len(LIGHT)}">{escape(name)}</th>' for i, name in enumerate(comparison.names)
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(row.label)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row.cells)}</tr>'
        for row in comparison.rows
    )
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _section(section: Section) -> str:
    parts = [f"<section><h2>{escape(section.title)}</h2>"]
    for code, lines in groupby(section.lines, key=lambda line: line.startswith("$ ")):
        tag = "pre" if code else "p"
        parts += [f"<{tag}{'' if code else ' class=small'}>{escape(line.removeprefix('$ '))}</{tag}>" for line in lines]
    return "".join([*parts, "</section>"])
