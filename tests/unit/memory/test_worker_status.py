"""Which envs a worker's line names."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.memory.worker_status import BEAT, MEMORY, WorkerStatus, envs_of, note_memory, spare


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ([0], "envs 7-13"),
        ([2], "envs 4-9"),
        ([1], "envs 4-13"),  # one range: it cannot leave out the middle
        ([0, 1], "envs 10-13"),
        ([2, 0], "envs 7-9"),
        ([2, 1, 0], ""),
        ([0, 0], "envs 7-13"),
    ],
)
def test_a_line_names_the_envs_that_have_not_finished(done: list[int], left: str) -> None:
    line = spare()
    spans = [3, 3, 4]
    parts = [WorkerStatus(line, first) for first in (4, 7, 10)]
    for i in (1, 0, 2, 1):
        parts[i].join(spans[i])
    assert envs_of(line) == "envs 4-13"
    for i in done:
        others = parts[i].besides(spans[i])
        parts[i].put(others)
    assert envs_of(line) == left
    parts[0].at(1)
    assert envs_of(line) == "env 5"
    parts[0].put(others)
    assert envs_of(line) == left


def test_each_names_the_env_of_the_round_and_keeps_the_name_if_it_raises() -> None:
    line = spare()
    status = WorkerStatus(line, 4)
    assert [(i, envs_of(line)) for i in status.each(2)] == [(0, "env 4"), (1, "env 5")]
    assert [envs_of(line) for _ in status.each(2, 3)] == ["envs 4-6", "envs 7-9"]
    assert (envs_of(line), line[BEAT]) == ("", 4)
    with pytest.raises(ZeroDivisionError):
        [1 // (1 - i) for i in status.each(3)]
    assert (envs_of(line), line[BEAT]) == ("env 5", 5)


def test_the_memory_of_sampled_workers_is_noted_in_kilobytes() -> None:
    lines = np.zeros((3, 8), np.int64)
    lines[:, MEMORY] = 7
    note_memory(lines, [20, 21], {21: 65.5, 99: 1.0})
    assert lines[:, MEMORY].tolist() == [7, 67072, 7]
    note_memory(lines, [], {21: 1.0})
    assert lines[:, MEMORY].tolist() == [7, 67072, 7], "a node of a cluster has noted it"
