"""Trials on disk: what is written is read back, and damage is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.domains.cyber.fake_search import Fake, make, no_word

from paceline.domains.cyber.trials import CSV, JSON, Trial, read_trials
from paceline.errors import ConfigError


def test_files_have_every_trial(tmp_path: Path) -> None:
    search = make(tmp_path, n_workflows=5)
    counts: list[int] = []
    search.run(Fake(), lambda found: counts.append(len(read_trials(found.folder))))
    assert counts == [1, 2, 3, 4, 5]
    assert read_trials(tmp_path) == search.trials
    with (tmp_path / CSV).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["expected"] == ""
    content = json.loads((tmp_path / JSON).read_text())
    assert content["best"]["workflow"] == search.best.workflow if search.best else None
    assert content["under_way"] is None
    assert sum(each["tried"] for each in content["expected"]) == 5
    assert len(content["expected"]) == 120


def damage(text: str) -> str:
    return text.replace("op_host", "op_hosts")


@pytest.mark.parametrize("change", [damage, lambda text: text.replace("reward", "gain")])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, change: Callable[[str], str]) -> None:
    make(tmp_path, n_workflows=2).run(Fake(), no_word)
    path = tmp_path / CSV
    path.write_text(change(path.read_text()))
    with pytest.raises(ConfigError, match=r"search.csv: damaged"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("stop_reason", "complied"),
    [("compliance >= 0.95 reached", True), ("callback StopAtMeans", True), ("total_episodes", False)],
)
def test_a_trial_complied_if_the_threshold_ended_it(stop_reason: str, complied: bool) -> None:
    trial = Trial(
        reward=-1.0, compliance=0.9, fixes=3.0, episodes=400, steps=40_000, wall_s=2.0, stop_reason=stop_reason,
        number=1, workflow="", expected=None, deviation=None, upper=None, folder="",
    )  # fmt: skip
    assert trial.complied == complied
