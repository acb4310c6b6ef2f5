"""The text of a game."""

from __future__ import annotations

from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.vector import NetworkDefenceVector


def test_the_text_shows_truth_and_belief() -> None:
    env = NetworkDefence(render_mode="ansi")
    env.reset(seed=0)
    for _ in range(30):
        env.step(0)
    lines = (env.render() or "").splitlines()
    assert lines[0] == "step 30, OTService is down"
    assert lines[2 + 7].split() == ["Op_Server0", "privileged", "user"]
    assert lines[2 + 8].split() == ["User0", "privileged"]
    assert NetworkDefence().render() is None
    many = NetworkDefenceVector(2, render_mode="ansi")
    many.reset(seed=0)
    assert len(many.render() or ()) == 2
