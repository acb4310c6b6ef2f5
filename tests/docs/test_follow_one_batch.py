"""docs/explain/follow-one-batch.md lists the functions that really run in one iteration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks.suites import trace_batch

PAGE = trace_batch.PAGE.read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?:&nbsp;)*`([^`]+)` \| \[([^\]]+)\]", re.MULTILINE)
INLINE = {0: trace_batch.PPO, 3: {**trace_batch.PPO, "algo": "impala"}, 4: trace_batch.DQN}
"""By number of the trace in the page: those of one process, whose calls do not depend on timing."""


def listed(number: int) -> list[tuple[str, str]]:
    """Files and functions of one list of the page."""
    found = re.search(rf"<!-- trace: calls {number} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    return [(file, name) for name, file in ROW.findall(found[1])]


@pytest.mark.parametrize("number", INLINE)
def test_the_page_lists_the_functions_that_run(number: int) -> None:
    settings: dict[str, Any] = INLINE[number]
    ran = [call.row for call in trace_batch.trace(**settings, num_workers=0)]
    assert listed(number) == ran, "the page is out of date: run `make bench-trace`"


def test_the_walk_begins_at_env_step_and_ends_at_the_optimiser_step() -> None:
    names = [name for _, name in listed(0)]
    assert names.index("SingleEnvs.step") < names.index("FlatAdam.step")


@pytest.mark.parametrize("number", range(5))
def test_every_listed_function_exists(number: int) -> None:
    rows = listed(number)
    assert rows
    for file, name in rows:
        source = (trace_batch.SRC / file).read_text(encoding="utf-8")
        assert f"def {name.rpartition('.')[2]}(" in source, f"{file}: {name}"
