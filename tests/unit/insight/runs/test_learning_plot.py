from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.unit.insight.runs.run_folders import complete, read_all, summarised

from paceline.insight.runs.curves import Series
from paceline.insight.runs.learning_plot import (
    _thinned,
    draw_curves,
    evaluations,
    evaluations_over_time,
    labels,
    panels,
)
from paceline.insight.runs.results import RunResult


@pytest.fixture
def one(tmp_path: Path) -> RunResult:
    return read_all(complete(tmp_path / "a", returns=float))[0]


def columns(**values: list[float]) -> dict[str, np.ndarray]:
    names = {"steps": "steps", "wall": "time/time_elapsed", "evaluation": "eval/mean_reward"}
    return {names[name]: np.array(found) for name, found in values.items()}


def test_the_picture_is_a_png_of_the_same_size_for_any_run(one: RunResult, tmp_path: Path) -> None:
    bare = read_all(summarised(tmp_path / "bare"))[0]  # no progress.csv at all
    sizes = set()
    for runs in ([one], [bare], [one, bare]):
        with Image.open(io.BytesIO(draw_curves(runs))) as image:
            assert image.format == "PNG"
            sizes.add(image.size)
            assert np.asarray(image.convert("L")).std() > 5  # something is on it
    assert len(sizes) == 1


def test_drawing_leaves_the_users_settings_alone(one: RunResult) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw_curves([one])
    assert dict(matplotlib.rcParams) == before


def test_the_final_evaluation_is_drawn_though_progress_csv_lacks_it(one: RunResult) -> None:
    progress = columns(steps=[100.0, 200.0, 300.0], wall=[1.0, 2.0, 3.0], evaluation=[np.nan, 7.0, np.nan])
    run = replace(one, progress=progress, steps=300, wall_s=3.5, final_eval=9.0)
    assert evaluations(run).x.tolist() == [200.0, 300.0]
    assert evaluations(run).y.tolist() == [7.0, 9.0]
    assert evaluations_over_time(run).x.tolist() == [2.0, 3.5]
    at_the_end = replace(run, progress={**progress, "eval/mean_reward": np.array([np.nan, np.nan, 9.0])})
    assert evaluations(at_the_end).x.tolist() == [300.0]
    assert evaluations_over_time(at_the_end).x.tolist() == [3.0]
    assert len(evaluations(replace(run, progress={}, final_eval=None)).x) == 0


def test_the_unit_of_time_suits_the_longest_run(one: RunResult) -> None:
    for wall_s, unit in ((60.0, "seconds"), (3600.0, "minutes"), (36_000.0, "hours")):
        assert [panel.x_label for panel in panels([replace(one, wall_s=wall_s), one])][1:3] == [unit, unit]


def test_long_runs_are_thinned_by_means() -> None:
    x = np.arange(1, 10_001, dtype=float)
    thin = _thinned(Series(x, x % 2))
    assert len(thin.x) == 200
    assert thin.y == pytest.approx(0.5)
    assert thin.x[-1] == 10_000
    short = Series(x[:300], x[:300])
    assert _thinned(short) is short


def test_names_are_as_short_as_can_be_and_told_apart() -> None:
    assert labels([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert labels([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]
    assert labels([]) == []
    (long,) = labels([Path("n" * 80)])
    assert len(long) == 48
    assert long.startswith("…")


def recording(one: RunResult, *tags: str) -> RunResult:
    """A run with two rows of these columns, and no others of learning."""
    numbers = {tag: np.array([0.5, 1.0]) for tag in tags}
    return replace(one, progress={**columns(steps=[100.0, 200.0], wall=[1.0, 2.0]), **numbers})


def test_every_run_has_the_panels_of_what_it_has_recorded(one: RunResult) -> None:
    def titles(*runs: RunResult) -> list[str]:
        return [panel.title for panel in panels(runs)][3:]

    ppo = recording(one, "train/explained_variance", "train/loss")
    dqn = recording(one, "train/loss", "train/epsilon", "train/mean_q", "train/buffer_size")
    games = recording(one, "train/explained_variance", "train/elo", "train/win_rate_random", "rollout/success_rate")
    assert titles(ppo) == ["Explained variance"]
    assert titles(dqn) == ["Loss", "Epsilon", "Mean Q"]
    assert titles(games) == ["Success rate", "Elo", "Win rate against random", "Explained variance"]
    assert titles(ppo, dqn) == ["Explained variance", "Epsilon", "Mean Q"]
    assert titles(recording(one)) == ["Loss"], "a panel that says that nothing was recorded"
    empty = replace(dqn, progress={**dqn.progress, "train/explained_variance": np.array([np.nan, np.nan])})
    assert titles(empty) == titles(dqn), "DQN's column of explained variance is empty"
    epsilon = next(panel for panel in panels([ppo, dqn]) if panel.title == "Epsilon")
    assert epsilon.get(dqn).y.tolist() == [0.5, 1.0]
    assert len(epsilon.get(ppo).x) == 0


def test_the_picture_has_a_row_for_every_two_panels(one: RunResult) -> None:
    heights = []
    for tags in ((), ("train/loss", "train/epsilon"), ("train/loss", "train/epsilon", "train/mean_q")):
        with Image.open(io.BytesIO(draw_curves([recording(one, *tags)]))) as image:
            heights.append(image.size[1])
    assert heights[0] < heights[1] == heights[2]
