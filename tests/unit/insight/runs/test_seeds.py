"""Runs that differ only in their seed are one side of a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.insight.runs.run_folders import config, read_all, summarised

from paceline.insight.runs.results import RunResult
from paceline.insight.runs.seeds import group_by_seed


def runs(tmp_path: Path, *names: str) -> list[RunResult]:
    """Runs of one config with the seeds 0, 1, ..."""
    return read_all(*(summarised(tmp_path / name, seed=seed) for seed, name in enumerate(names)))


def names_and_seeds(found: list[RunResult]) -> list[tuple[str | None, list[int | None]]]:
    return [(name, [run.seed for run in group]) for name, group in group_by_seed(found)]


def test_two_configs_with_several_seeds_are_two_sides(tmp_path: Path) -> None:
    a, b = runs(tmp_path, "a_0", "a_1", "a_2"), runs(tmp_path, "b_0", "b_1")
    b = [replace(run, config=config(training__n_steps=64)) for run in b]
    mixed = [a[0], b[0], a[1], b[1], a[2]]
    assert names_and_seeds(mixed) == [("a", [0, 1, 2]), ("b", [0, 1])]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 0},
        {"seed": None},
        {"config": {}},
        {"num_workers": 2},
        {"group_size": 8},
        {"env": "Acrobot-v1"},
        {"config": config(training__learning_rate=0.1)},
        {"config": config(run__total_timesteps=5000)},
        {"config": config(parallel__num_workers=4)},
    ],
)
def test_a_run_that_differs_in_more_or_less_than_its_seed_is_a_side_of_its_own(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    first, second = runs(tmp_path, "a0", "a1")
    assert len(group_by_seed([first, replace(second, **changes)])) == 2
    assert len(group_by_seed([first, second])) == 1


def test_another_machine_or_folder_is_the_same_config(tmp_path: Path) -> None:
    first, second = runs(tmp_path, "a0", "a1")
    other = replace(second, machine={"cpu": "Other"}, config=config(run__seed=8, run__output_dir="there"))
    assert len(group_by_seed([first, other])) == 1


@pytest.mark.parametrize(
    ("folders", "name"),
    [
        (("ppo_seed1", "ppo_seed2"), "ppo"),
        (("ppo2_1", "ppo2_2"), "ppo2"),
        (("run10", "run11"), "run"),
        (("lunar-s1", "lunar-s2"), "lunar"),
        (("deep/seed_0", "deep/seed_1"), "deep"),
        (("x/final", "y/final"), "final"),
        (("x/red", "y/blue"), "ppo"),
        (("classes_1", "classes_2"), "classes"),
    ],
)
def test_the_name_of_a_side_is_what_the_folders_have_in_common(
    tmp_path: Path, folders: tuple[str, str], name: str
) -> None:
    assert group_by_seed(runs(tmp_path, *folders))[0][0] == name
