from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.insight.runs.run_folders import MACHINE, config, sides, summarised

from paceline.insight.runs.likeness import DifferenceKind, differences, machine, remarks, same_task
from paceline.insight.runs.results import RunResult, read_run


@pytest.fixture
def run(tmp_path: Path) -> RunResult:
    return read_run(summarised(tmp_path / "a"))


def other(run: RunResult, **changes: Any) -> RunResult:
    return replace(run, path=run.path.with_name("b"), config=config(**changes))


def test_seed_workers_and_folders_are_no_difference(run: RunResult) -> None:
    twin = replace(other(run, run__seed=8, run__output_dir="b", parallel__num_workers=4), seed=8, num_workers=4)
    assert differences(sides(run, twin)) == ()


@pytest.mark.parametrize(
    ("changes", "what", "values", "kind"),
    [
        ({"training__n_steps": 64}, "n_steps", ("128", "64"), DifferenceKind.SETTINGS),
        ({"policy__hidden_sizes": [32]}, "hidden_sizes", ("64,64", "32"), DifferenceKind.SETTINGS),
        ({"env__env_kwargs": {"g": 9}}, "env_kwargs", ("none", "g=9"), DifferenceKind.TASK),
        ({"run__total_timesteps": 5000}, "total_timesteps", ("none", "5,000"), DifferenceKind.BUDGET),
        ({"run__duration": 1.0}, "duration", ("60 s", "3600 s"), DifferenceKind.BUDGET),
    ],
)
def test_settings_are_told_apart(run: RunResult, changes: Any, what: str, values: Any, kind: DifferenceKind) -> None:
    (found,) = differences(sides(run, other(run, **changes)))
    assert (found.what, found.values, found.kind) == (what, values, kind)
    assert str(found) == f"{what} {values[0]} against {values[1]}"


def test_one_duration_in_two_spellings_is_one_budget(run: RunResult) -> None:
    assert differences(sides(run, other(run, run__duration="1m"))) == ()


def test_the_most_serious_difference_comes_first(run: RunResult) -> None:
    cpu = {**MACHINE, "cpu": "Other", "versions": {"torch": "1"}}
    far = replace(other(run, training__n_steps=1, run__duration="1s"), env="Acrobot-v1", machine=cpu)
    kinds = [difference.kind for difference in differences(sides(run, far))]
    assert kinds == [
        DifferenceKind.TASK,
        DifferenceKind.SETTINGS,
        DifferenceKind.BUDGET,
        DifferenceKind.MACHINE,
        DifferenceKind.DETAIL,
    ]
    base, side = sides(run, far)
    assert not same_task(base, side)
    assert same_task(base, base)


def test_a_side_with_different_values_shows_both(run: RunResult) -> None:
    (found,) = differences(sides([run, other(run, training__n_steps=64)], replace(run, path=Path("c"))))
    assert found.values == ("128 or 64", "128")


def test_remarks_name_what_is_missing(run: RunResult) -> None:
    blank = replace(run, path=Path("b"), config={}, finished=False, stop_reason="SIGTERM")
    said = remarks(sides(run, blank), ())
    assert "b is unfinished (SIGTERM): its numbers cover only the part it has run." in said
    assert "b has no readable config.yaml: its settings are not compared." in said
    assert "b has no progress.csv: it has no curves." in said


def test_remarks_name_the_sides_that_differ(run: RunResult) -> None:
    many = sides(run, *(replace(run, path=Path(name), n_envs=n) for name, n in (("b", 32), ("c", 8))))
    said = remarks(many, differences(many))
    assert said[0] == "the runs differ in n_envs (8 in c, 32 in the others): not like for like."


def test_remarks_name_seeds_and_workers_that_spoil_a_group(run: RunResult) -> None:
    said = remarks(sides([run, replace(run, path=Path("b"), num_workers=2)], replace(run, path=Path("c"))), ())
    assert "A has a seed more than once (7, 7): its intervals are too narrow." in said
    assert "A has runs with different numbers of workers (0, 2)." in said


def test_machine_in_words(run: RunResult) -> None:
    assert machine(run) == "Testium 9, 2 cores"
    assert (
        machine(replace(run, machine={"cpu": "X", "cores": {"logical": 8, "quota": 1.5}})) == "X, 8 cores (quota 1.5)"
    )
    assert machine(replace(run, machine={})) is None
