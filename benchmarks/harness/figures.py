"""Puts results into the docs, so that no number is ever typed: `make bench-docs`.

A page says `<!-- figures: NAME -->` and `<!-- end -->`, each on a line of its own. This script fills the space between
them with the picture results/NAME.png (if there is one), the `fragment` of results/NAME.json, the machine and the
command. A result without a fragment (one that is merged from several invocations, as the peers are) is taken from
results/NAME.md, which names its own machine and commands. A test compares the pages with the files. Standard library
only.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(r"(?<=^<!-- figures: )([\w-]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page that may have places for figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str, folder: Path, found: Path = RESULTS) -> str:
    """The text of a page with all its figures.

    Args:
        text: As it is now.
        folder: Where the page lies: links to pictures are relative to it.
        found: Where the results lie.
    """
    return PLACE.sub(lambda place: f"{place[1]}{place[2]}\n{_figures(place[1], folder, found)}\n\n", text)


def _figures(name: str, folder: Path, found: Path) -> str:
    if not (found / f"{name}.json").exists():
        return f"Not measured yet: `make bench-{name}`."
    result = json.loads((found / f"{name}.json").read_text(encoding="utf-8"))
    picture = found / f"{name}.png"
    if "fragment" in result:
        machine = result["machine"]
        parts = [
            result["fragment"],
            f"Measured on {machine['cores']} cores of an {machine['cpu']}: `{machine['command']}`",
        ]
    else:
        parts = [_without_title((found / f"{name}.md").read_text(encoding="utf-8"))]
    if picture.exists():
        parts.insert(0, f"![{name}]({Path(os.path.relpath(picture, folder)).as_posix()})")
    return "\n\n".join(parts)


def _without_title(text: str) -> str:
    """The markdown of a result without its `# Title`, and with headings one level lower, to fit into a page."""
    return re.sub(r"^#", "##", text.partition("\n")[2].strip(), flags=re.MULTILINE)


def main() -> None:
    """Rewrite the pages that are behind their results."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = filled(before, page.parent)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: new figures")


if __name__ == "__main__":
    main()
