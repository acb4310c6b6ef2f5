"""Copy benchmark results into the docs, so that no figure is typed by hand: `make bench-docs`.

A page contains `<!-- figures: NAME -->` and `<!-- end -->`, each on a line of its own. The text between them becomes
the picture results/NAME.png (if it exists), the `fragment` of results/NAME.json, the machine and the command. A result
without a fragment, such as the peers' (merged from several runs), is copied from results/NAME.md, which names its
machine and commands itself. A test checks that the pages match the results. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from benchmarks.harness.paths import RESULTS, ROOT

BLOCK = re.compile(r"(?<=^<!-- figures: )([\w-]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """All pages that may contain figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str, folder: Path, found: Path = RESULTS) -> str:
    """The text of a page with current figures.

    Args:
        text: The page as it is now.
        folder: The folder of the page, because links to pictures are relative to it.
        found: The folder of the results.
    """
    return BLOCK.sub(lambda block: f"{block[1]}{block[2]}\n{_figures(block[1], folder, found)}\n\n", text)


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
    """Remove the `# Title` of a result and lower its other headings by one level, so that it fits into a page."""
    return re.sub(r"^#", "##", text.partition("\n")[2].strip(), flags=re.MULTILINE)


def main() -> None:
    """Rewrite the pages whose figures are out of date."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = filled(before, page.parent)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: new figures")


if __name__ == "__main__":
    main()
