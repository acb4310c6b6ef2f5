"""The work queue: items are claimed once, by any free process."""

from __future__ import annotations

import pytest
from tests.contract.runtimes import running
from tests.jobs import DIE, HANG, STUCK

from paceline.errors import WorkerDied, WorkerHung


@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_worker_that_is_stuck_leaves_the_work_to_the_others(kind: str) -> None:
    with running(kind) as it:
        it.arena["mode"][0] = STUCK
        it.runtime.work(20)
        by_worker = it.arena["items"].sum(1)
        assert by_worker.sum() == 20
        assert by_worker[0] <= 1


def test_a_worker_that_dies_or_hangs_in_its_work_is_noticed() -> None:
    with running("forkserver") as it:
        it.arena["mode"][0] = DIE
        with pytest.raises(WorkerDied, match=r"`work`.*SIGKILL"):
            it.runtime.work(4)
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=1.0) as it:
        it.arena["mode"][0] = HANG
        with pytest.raises(WorkerHung, match="`work`"):
            it.runtime.work(4)
