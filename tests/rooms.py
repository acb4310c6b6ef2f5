"""Draws docs/images/rooms.svg: the rooms (packages) of the source and which imports which, from the layer test's table.

    PYTHONPATH=. python -m tests.rooms        (or `make docs-picture`)

An arrow is an import that stands in the source. Imports that follow from other arrows are left out: where train imports
algos and algos imports memory, train may import memory as well.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

from tests.unit.test_layers import LAYERS, LEVEL, TOP, imports_of, modules_of_the_source, room_of

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "rooms.svg"

CAPTIONS = {
    "cli": "commands",
    "integrations": "other libraries",
    "domains": "games, network defence",
    "insight": "bench, compare, tune",
    "train": "loop, algorithms, runs",
    "vector": "make_vec",
    "inference": "central inference",
    "collect": "rollouts, transitions",
    "algos": "learners, gradients",
    "envs": "make, step, threads",
    "runtime": "worker processes, Ray",
    "memory": "arena, slots, replay",
    "nets": "networks, actors",
    "config": "settings, flags",
    "measure": "clock, logs, display",
    "batch": "what a learner gets",
    "ops": "pure maths",
    "system": "operating system",
    "spec": "shapes and dtypes",
    "moved": "old import paths",
    "errors": "exceptions",
}
"""What a room is about, in a few words; docs/explain/architecture.md says more."""
COLUMN = {
    "cli": 2, "integrations": 0, "domains": 1, "insight": 2, "train": 2, "vector": 0, "inference": 3, "collect": 3,
    "algos": 2, "envs": 1, "runtime": 0, "memory": 1, "nets": 4, "config": 2, "measure": 2, "batch": 1, "ops": 3,
    "system": 0, "moved": 3, "spec": 4, "errors": 2,
}  # fmt: skip
WIDE, HIGH, ACROSS, DOWN, MARGIN = 148, 46, 178, 80, 20


def imported() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, module in modules_of_the_source():
        room = room_of(module)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for one in imports_of(path.read_text(encoding="utf-8"), package):
            target = room_of(one.module)
            if target != room and not {room, target} & TOP:
                found[room].add(target)
    return found


def arrows(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that do not follow from others."""

    def below(room: str) -> set[str]:
        return imports.get(room, set()).union(*(below(target) for target in imports.get(room, ())))

    return sorted(
        (room, target)
        for room, targets in imports.items()
        for target in targets
        if not any(target in below(other) for other in targets - {target})
    )


def picture() -> str:
    """The picture as SVG."""
    rows = len(LAYERS)

    def place(room: str) -> tuple[int, int]:
        return MARGIN + COLUMN[room] * ACROSS, MARGIN + (rows - 1 - LEVEL[room]) * DOWN

    width, height = 2 * MARGIN + max(COLUMN.values()) * ACROSS + WIDE, 2 * MARGIN + (rows - 1) * DOWN + HIGH
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for room, target in arrows(imported()):
        (x, y), (to_x, to_y) = place(room), place(target)
        lines.append(
            f'<line x1="{x + WIDE // 2}" y1="{y + HIGH}" x2="{to_x + WIDE // 2}" y2="{to_y}" stroke="#667" '
            f'stroke-width="1.3" marker-end="url(#tip)"><title>{room} imports {target}</title></line>'
        )
    for room in sorted(LEVEL, key=lambda one: (-LEVEL[one], COLUMN[one])):
        x, y = place(room)
        lines += [
            f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="#eef3fa" stroke="#446"/>',
            f'<text x="{x + WIDE // 2}" y="{y + 19}" text-anchor="middle" font-size="14" font-weight="bold" '
            f'fill="#223">{room}</text>',
            f'<text x="{x + WIDE // 2}" y="{y + 36}" text-anchor="middle" font-size="11" fill="#445">'
            f"{escape(CAPTIONS[room])}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
