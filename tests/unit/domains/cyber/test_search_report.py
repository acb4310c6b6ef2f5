"""The text and the picture of a search over workflows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.domains.cyber.fake_search import Fake, make, no_word

from paceline.domains.cyber.search_report import picture, report
from paceline.domains.cyber.trials import JSON, Trained


def test_the_report_names_the_best_and_the_most_promising(tmp_path: Path) -> None:
    search = make(tmp_path, n_workflows=12)
    search.run(Fake(), no_word)
    belief = search.belief()
    assert belief is not None
    text = report(search, belief)
    assert search.best is not None
    assert f"best: {search.best.workflow}, reward {search.best.reward:.2f}, compliance 0.960" in text
    assert "and 2 more in search.csv" in text
    tried = {trial.workflow for trial in search.trials}
    promising = [line.split()[-1] for line in text.partition("not tried yet")[2].splitlines()[1:]]
    assert len(promising) == 5
    assert not tried & set(promising)
    assert picture(search, belief).startswith(b"\x89PNG")
    assert report(make(tmp_path / "new"), None) == "nothing has been tried yet\n"


def test_the_report_warns_if_rewards_grow_with_the_trial_number(tmp_path: Path) -> None:
    class Later(Fake):
        def __call__(self, *args: Any, **options: Any) -> Trained | str:
            trained = super().__call__(*args, **options)
            assert isinstance(trained, Trained)
            return replace(trained, reward=-1000.0 / len(self.calls))

    grown, steady = make(tmp_path / "grown", n_workflows=10), make(tmp_path / "steady", n_workflows=10)
    grown.run(Later(), no_word)
    assert grown.drift == pytest.approx(1.0)
    assert "rewards grow with the trial number (rank correlation 1.00)" in report(grown, grown.belief())
    assert json.loads((tmp_path / "grown" / JSON).read_text())["drift"] == pytest.approx(1.0)
    steady.trials = [replace(trial, reward=-5.0) for trial in grown.trials]
    assert steady.drift == 0.0
    assert "careful" not in report(steady, None)
    assert make(tmp_path / "few", n_workflows=2).drift is None


def test_the_report_warns_if_workflows_tie_for_the_best(tmp_path: Path) -> None:
    search = make(tmp_path, n_workflows=5)
    search.run(Fake(), no_word)
    assert "tie" not in report(search, None)
    assert json.loads((tmp_path / JSON).read_text())["tied_for_best"] == []
    search.trials = [replace(trial, reward=-365.45 if trial.number != 2 else -400.0) for trial in search.trials]
    assert [trial.number for trial in search.leaders] == [1, 3, 4, 5]
    text = report(search, None)
    assert "best: 4 of 5 workflows tie with the highest reward, -365.45\nwarning: this search does not show" in text
    assert f"best: {search.trials[0].workflow}" not in text
    search.write()
    tied = json.loads((tmp_path / JSON).read_text())["tied_for_best"]
    assert tied == [search.trials[number].workflow for number in (2, 3, 4)]
