"""Every part of the self-test passes on this machine."""

from __future__ import annotations

import pytest

from paceline.errors import PacelineError
from paceline.insight import selftest


def test_every_part_passes_here() -> None:
    tried = []
    for name, test in selftest.parts("CartPole-v1", {}):
        if "spawn" in name:  # by far the slowest, and tested by the contract tests of runtimes
            continue
        detail = test()
        assert detail, name
        assert "hint" not in detail, name
        tried.append(name)
    assert {"shared memory", "start method forkserver", "same weights for 0 and 2 workers"} <= set(tried)


def test_rules_that_an_env_breaks_are_an_error_and_hints_are_not() -> None:
    parts = dict(selftest.parts("tests.unit.insight.test_env_check:Outside", {}))
    with pytest.raises(PacelineError, match=r"^observation bounds: observation\[\d\] is "):
        parts["what tests.unit.insight.test_env_check:Outside returns, and its seed"]()
    parts = dict(selftest.parts("tests.unit.insight.test_env_check:Steering", {}))
    detail = parts["what tests.unit.insight.test_env_check:Steering returns, and its seed"]()
    assert detail.startswith("no rule is broken\nhint     action range: ")
