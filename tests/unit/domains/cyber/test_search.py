"""The search over workflows: what it tries, what it keeps, and how it goes on. Nothing is trained here."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.domains.cyber.gp_ucb import Belief, Floats, choose, gaussian_process
from paceline.domains.cyber.search import INDEX, POINTS, Search, SearchPlan
from paceline.domains.cyber.search_report import picture, report
from paceline.domains.cyber.trials import CSV, JSON, Trained, read_trials
from paceline.domains.cyber.workflow import WORKFLOWS, read_workflow, workflow_name
from paceline.errors import ConfigError

GOAL = 77


def nearest_seen(points: Floats, tried: Floats, seen: Floats) -> Belief:
    """Expects what the nearest tried one gave, and is the less sure the farther away that is."""
    distance = np.linalg.norm(points[:, None] - tried[None], axis=2)
    return Belief(seen[distance.argmin(1)], distance.min(1))


class Fake:
    """Rewards grow towards one workflow. Ends by a signal when asked to."""

    def __init__(self, stop_at: int = 0) -> None:
        self.calls: list[dict[str, Any]] = []
        self._stop_at = stop_at

    def __call__(
        self, workflow: str, folder: Path, *, warm: Path | None, episodes: int, seconds: float | None
    ) -> Trained | str:
        self.calls.append({"workflow": workflow, "folder": folder.name, "warm": warm and warm.name, "left": episodes})
        if len(self.calls) == self._stop_at:
            return "SIGINT"
        index = INDEX[read_workflow(workflow)]
        reward = -10.0 * float(np.linalg.norm(POINTS[index] - POINTS[GOAL]))
        return Trained(
            reward=reward, compliance=0.96, fixes=3.0, episodes=min(400, episodes), steps=40_000, wall_s=2.0,
            stop_reason="callback StopAtMeans",
        )  # fmt: skip

    @property
    def workflows(self) -> list[str]:
        return [call["workflow"] for call in self.calls]


def make(folder: Path, **plan: Any) -> Search:
    return Search(folder, SearchPlan(**plan), {"settings": {"red_agent": "bline"}}, nearest_seen)


def no_word(search: Search) -> None:
    pass


def test_firsts_then_drawn_ones_then_the_highest_bound_and_none_twice(tmp_path: Path) -> None:
    first = workflow_name(WORKFLOWS[50])
    search, fake = make(tmp_path, n_workflows=30, n_initial=3, first=(first,)), Fake()
    assert search.run(fake, no_word) == "n_workflows"
    assert fake.workflows[0] == first
    assert len(set(fake.workflows)) == 30
    assert [trial.upper is None for trial in search.trials[:4]] == [True, True, True, False]
    for trial in search.trials[3:]:
        assert trial.expected is not None
        assert trial.deviation is not None
        assert trial.upper == pytest.approx(trial.expected + 2.0 * trial.deviation)
    assert search.best is not None
    assert search.best.reward == max(trial.reward for trial in search.trials)
    assert [call["warm"] for call in fake.calls] == [None, *(call["folder"] for call in fake.calls[:-1])]


def test_other_seeds_draw_others(tmp_path: Path) -> None:
    drawn = []
    for seed in (0, 1):
        fake = Fake()
        make(tmp_path / str(seed), n_workflows=2, seed=seed).run(fake, no_word)
        drawn.append(fake.workflows)
    assert drawn[0] != drawn[1]


def test_the_budget_is_that_of_all_together(tmp_path: Path) -> None:
    search, fake = make(tmp_path, total_episodes=1000, workflow_episodes=500, warm_start=False), Fake()
    assert search.run(fake, no_word) == "total_episodes"
    assert [call["left"] for call in fake.calls] == [500, 500, 200]
    assert {call["warm"] for call in fake.calls} == {None}
    assert make(tmp_path / "timed", duration_s=3.0).run(Fake(), no_word) == "duration"


@pytest.mark.parametrize("stop_at", [1, 2, 6])
def test_an_interrupted_search_goes_on_with_what_was_under_way(tmp_path: Path, stop_at: int) -> None:
    whole = make(tmp_path / "whole", n_workflows=8)
    whole.run(Fake(), no_word)
    cut = Fake(stop_at)
    assert make(tmp_path / "cut", n_workflows=8).run(cut, no_word) == "SIGINT"
    assert json.loads((tmp_path / "cut" / JSON).read_text())["under_way"] == cut.workflows[-1]
    rest, search = Fake(), make(tmp_path / "cut", n_workflows=8)
    search.run(rest, no_word)
    assert rest.calls[0] == cut.calls[-1]
    assert search.trials == whole.trials
    assert (tmp_path / "cut" / CSV).read_text() == (tmp_path / "whole" / CSV).read_text()


def test_what_is_on_disk_is_what_was_tried(tmp_path: Path) -> None:
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


def test_another_search_is_refused_and_a_larger_budget_is_not(tmp_path: Path) -> None:
    make(tmp_path, n_workflows=2).run(Fake(), no_word)
    more = make(tmp_path, n_workflows=3)
    assert more.run(Fake(), no_word) == "n_workflows"
    assert len(more.trials) == 3
    with pytest.raises(ConfigError, match=r"holds another search: gp_beta is 2.0 there and 1.0 here"):
        make(tmp_path, gp_beta=1.0)


def damage(text: str) -> str:
    return text.replace("op_host", "op_hosts")


@pytest.mark.parametrize("change", [damage, lambda text: text.replace("reward", "gain")])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, change: Callable[[str], str]) -> None:
    make(tmp_path, n_workflows=2).run(Fake(), no_word)
    path = tmp_path / CSV
    path.write_text(change(path.read_text()))
    with pytest.raises(ConfigError, match=r"search.csv: damaged"):
        make(tmp_path)


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


def test_a_report_warns_where_whoever_came_later_did_better(tmp_path: Path) -> None:
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


def test_the_choice_is_by_the_upper_bound() -> None:
    belief = Belief(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.3, 0.4]))
    assert choose(belief, 0.0, []) == 0
    assert choose(belief, 2.0, []) == 1
    assert choose(belief, 9.0, []) == 2
    assert choose(belief, 2.0, [1]) == 0


def test_the_gaussian_process_follows_what_it_saw_and_doubts_the_rest() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    tried = rng.permutation(120)[:25]
    truth = -100.0 * np.linalg.norm(POINTS - POINTS[GOAL], axis=1) - 20.0
    belief = gaussian_process(POINTS, POINTS[tried], truth[tried])
    others = np.setdiff1d(np.arange(120), tried)
    assert np.corrcoef(belief.mean[others], truth[others])[0, 1] > 0.8
    assert belief.std[others].mean() > 2 * belief.std[tried].mean()
    assert (belief.std >= 0).all()


def test_the_search_finds_the_best_with_few_trials(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    search = Search(tmp_path, SearchPlan(n_workflows=30), {}, gaussian_process)
    search.run(Fake(), no_word)
    assert search.best is not None
    assert search.best.workflow == workflow_name(WORKFLOWS[GOAL])
