"""The search over workflows with a fake trainer: order of trials, budgets, and resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.domains.cyber.fake_search import GOAL, Fake, make, no_word

from paceline.domains.cyber.gp_ucb import gaussian_process
from paceline.domains.cyber.search import Search, SearchPlan
from paceline.domains.cyber.trials import CSV, JSON
from paceline.domains.cyber.workflow import WORKFLOWS, workflow_name
from paceline.errors import ConfigError


def test_given_then_random_then_highest_bound_workflows_and_none_twice(tmp_path: Path) -> None:
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


def test_total_episodes_limit_the_whole_search(tmp_path: Path) -> None:
    search, fake = make(tmp_path, total_episodes=1000, workflow_episodes=500, warm_start=False), Fake()
    assert search.run(fake, no_word) == "total_episodes"
    assert [call["left"] for call in fake.calls] == [500, 500, 200]
    assert {call["warm"] for call in fake.calls} == {None}
    assert make(tmp_path / "timed", duration_s=3.0).run(Fake(), no_word) == "duration"


@pytest.mark.parametrize("stop_at", [1, 2, 6])
def test_an_interrupted_search_resumes_the_unfinished_workflow(tmp_path: Path, stop_at: int) -> None:
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


def test_another_search_is_refused_and_a_larger_budget_is_not(tmp_path: Path) -> None:
    make(tmp_path, n_workflows=2).run(Fake(), no_word)
    more = make(tmp_path, n_workflows=3)
    assert more.run(Fake(), no_word) == "n_workflows"
    assert len(more.trials) == 3
    with pytest.raises(ConfigError, match=r"holds another search: gp_beta is 2.0 there and 1.0 here"):
        make(tmp_path, gp_beta=1.0)


def test_the_search_finds_the_best_with_few_trials(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    search = Search(tmp_path, SearchPlan(n_workflows=30), {}, gaussian_process)
    search.run(Fake(), no_word)
    assert search.best is not None
    assert search.best.workflow == workflow_name(WORKFLOWS[GOAL])
