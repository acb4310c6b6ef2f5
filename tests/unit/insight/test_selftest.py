"""Every part of the self-test passes on this machine."""

from __future__ import annotations

from paceline.insight import selftest


def test_every_part_passes_here() -> None:
    tried = []
    for name, test in selftest.parts("CartPole-v1", {}):
        if "spawn" in name:  # by far the slowest, and tested by the contract tests of runtimes
            continue
        assert test(), name
        tried.append(name)
    assert {"shared memory", "start method forkserver", "same weights for 0 and 2 workers"} <= set(tried)
