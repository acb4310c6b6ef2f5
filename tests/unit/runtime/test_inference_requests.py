"""Requests of workers for central inference."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.memory.shared import Arena
from paceline.memory.worker_status import heartbeat_field
from paceline.runtime import inference_requests as inference_requests
from paceline.runtime.inference_requests import InferenceRequests, inference_request_fields


def test_the_wait_for_an_answer_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena.create([*inference_request_fields(1, 1, 1), heartbeat_field(1)])
    driver = InferenceRequests(arena)
    asker: Any = driver.worker_end(0).open(arena, 0)

    class Answers:
        def wait(self, _seconds: float) -> None:
            driver.answer(0, 0)

    monkeypatch.setattr(asker, "_watch", Answers())
    monkeypatch.setattr(inference_requests, "perf_counter", iter([10.0, 12.5]).__next__)
    asker.ask(0, 0)
    assert asker.wait(0) == 2.5
    driver.close()
    arena.close()
