from __future__ import annotations

from typing import Any

import pytest

from paceline.errors import WorkerDied
from paceline.train.restarts import MOST_IN_A_ROW, Restarts


class Grave:
    """A runtime whose new workers die as often as told."""

    num_workers = 2

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths

    def respawn(self, worker: int, command: str, *args: Any) -> Any:
        if self.deaths:
            self.deaths -= 1
            raise WorkerDied("again.", worker)
        return command, args


def grave(deaths: int = 0) -> Restarts:
    runtime: Any = Grave(deaths)
    return Restarts(runtime)


def test_a_new_worker_does_its_first_command() -> None:
    restarts = grave()
    assert restarts.replace(WorkerDied("gone.", 1), "restore", [3]) == (1, ("restore", ([3],)))
    assert restarts.count == 1


def test_one_that_dies_while_it_starts_is_replaced_too() -> None:
    restarts = grave(deaths=2)
    assert restarts.replace(WorkerDied("gone.", 1), "reset")[0] == 1
    assert restarts.count == 3
    assert len(restarts.notes()) == 3


def test_too_many_deaths_in_a_row_are_the_end_and_work_in_between_forgives_them() -> None:
    restarts = grave()
    for _ in range(3 * MOST_IN_A_ROW):
        restarts.replace(WorkerDied("gone.", 0), "reset")
        restarts.collected(0)
    for _ in range(MOST_IN_A_ROW):
        restarts.replace(WorkerDied("gone.", 0), "reset")
    restarts.replace(WorkerDied("gone.", 1), "reset")  # another one
    with pytest.raises(WorkerDied, match=f"gone.\nIt was replaced {MOST_IN_A_ROW} times in a row"):
        restarts.replace(WorkerDied("gone.", 0), "reset")
