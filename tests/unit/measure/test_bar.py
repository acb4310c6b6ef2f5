from __future__ import annotations

from tests.unit.measure.iterations import iteration, view

from paceline.measure.bar import bar_line
from paceline.measure.record import Goal


def test_the_bar_shows_progress_time_speed_and_return() -> None:
    line = bar_line(view(*(iteration(i) for i in range(1, 6))), 120).plain
    assert line.startswith("━" * 30 + "  50%  5,000/10,000 steps  0:02, 0:02 left  2,000 steps/s  return 12.5")


def test_it_counts_in_the_unit_of_the_budget() -> None:
    assert " 10%  10/100 episodes  " in bar_line(view(iteration(1), goal=Goal(episodes=100)), 120).plain
    assert "  1,000 steps  " in bar_line(view(iteration(1), goal=Goal(seconds=60)), 120).plain


def test_it_fits_its_width() -> None:
    assert len(bar_line(view(iteration(5)), 60).plain) == 60
    assert bar_line(view(), 60).plain == "starting, 0:00"
