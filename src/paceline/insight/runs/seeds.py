"""Groups runs that differ only in their seed: a comparison shows their means and intervals, and does not rank them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from paceline.insight.runs.likeness import same_config
from paceline.insight.runs.results import RunResult

Group = tuple[str | None, list[RunResult]]
"""A name (None: that of the run's folder) and the runs of one side."""


def group_by_seed(runs: Sequence[RunResult]) -> list[Group]:
    """Group runs of equal settings and different seeds, in the order of the first run of each group."""
    groups: list[list[RunResult]] = []
    for run in runs:
        home = next((group for group in groups if _is_another_seed(run, group)), None)
        if home is None:
            groups.append([run])
        else:
            home.append(run)
    return [(_name(group) if len(group) > 1 else None, group) for group in groups]


def _is_another_seed(run: RunResult, group: Sequence[RunResult]) -> bool:
    if run.seed is None or not run.config or any(run.seed == other.seed for other in group):
        return False
    return bool(group[0].config) and same_config(run, group[0])


def _name(runs: Sequence[RunResult]) -> str:
    """What the folder names have in common without "seed" and numbers; else the folder that all runs are in."""
    paths = [run.path.resolve() for run in runs]
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(path.name for path in paths), strict=False))
    prefix = "".join(letters[0] for letters in alike)
    if prefix != paths[0].name:
        prefix = re.sub(r"\d+$", "", prefix)
        prefix = re.sub(r"((^|[-_. ])s(eed)?)?[-_. ]*$", "", prefix)
    parents = {path.parent.name for path in paths}
    return prefix or (parents.pop() if len(parents) == 1 else "") or runs[0].mode or "runs"
