"""Sets of slots and the shape of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.train.async_runs import config

from paceline.errors import ConfigError
from paceline.train.run import train


@pytest.mark.parametrize(
    ("algo", "settings", "text"),
    [
        ("impala", {"batch_slots": 5}, "batch_slots=5: 2 worker(s) with slots_per_worker=2 can fill 4"),
        ("impala", {"num_workers": 0, "batch_slots": 3}, "batch_slots=3: 1 worker(s)"),
    ],
)
def test_a_batch_with_more_slots_than_all_workers_have_is_refused(
    algo: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(config(algo, **settings))
    assert text in str(caught.value)
