"""Shares of the groups, and replies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.runtime.protocol import (
    CentralInferenceJob,
    DoorbellJob,
    GradientJob,
    Reply,
    Share,
    check_not_forgotten,
    serve,
    shares,
)


@given(st.integers(1, 40), st.integers(0, 40))
def test_shares_cover_all_groups_evenly(groups: int, workers: int) -> None:
    workers = min(groups, workers)
    parts = shares(groups, workers)
    assert [part.worker for part in parts] == list(range(max(1, workers)))
    assert [g for part in parts for g in range(part.first_group, part.first_group + part.groups)] == list(range(groups))
    assert max(p.groups for p in parts) - min(p.groups for p in parts) <= 1


def test_a_share_names_the_envs_of_its_groups() -> None:
    assert Share(1, first_group=2, groups=2).envs(group_size=3) == [6, 7, 8, 9, 10, 11]


def test_shares_of_a_cluster_node_count_from_its_first_group() -> None:
    assert shares(5, 2, first_group=10) == [Share(0, 10, 3), Share(1, 13, 2)]


def test_a_reply_has_no_result_before_it_is_done() -> None:
    reply: Reply[int] = Reply(3, "collect")
    with pytest.raises(RuntimeError, match="worker 3, `collect`: no result yet"):
        reply.result()
    reply.put(5)
    assert reply.done
    assert reply.result() == 5


def test_a_wait_for_a_forgotten_reply_is_refused() -> None:
    replies: list[Reply[object]] = [Reply(0, "collect"), Reply(1, "collect")]
    check_not_forgotten(replies)
    replies[1].forgotten = True
    with pytest.raises(RuntimeError, match="worker 1, `collect`: the worker was replaced"):
        check_not_forgotten(replies)


class Plain:
    def close(self) -> None: ...


class Full(Plain):
    def work(self, task: int) -> None: ...

    def connect(self, channel: object) -> None: ...

    def answer(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize("protocol", [GradientJob, CentralInferenceJob, DoorbellJob])
def test_what_a_job_can_do_is_seen_by_its_methods(protocol: Any) -> None:
    assert isinstance(Full(), protocol)
    assert not isinstance(Plain(), protocol)


def test_serve_is_no_call_for_a_runtime_without_doorbells() -> None:
    with pytest.raises(RuntimeError, match="Full: this runtime has no doorbells"):
        serve(Full())
