"""The scripted attackers: published scores, and the order of their acts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.cyber.playing import begun, take

from paceline.domains.cyber.actions import ACTIONS


def total(red_agent: str, steps: int, *, random: bool = False, episodes: int = 1000) -> tuple[float, float]:
    """The mean return of so many episodes, and its standard error."""
    network = begun(episodes, 1, red_agent=red_agent)
    rng = np.random.default_rng(0)
    returns = np.zeros(episodes)
    for _ in range(steps):
        actions = rng.integers(0, ACTIONS, episodes) if random else np.zeros(episodes, np.int64)
        returns += network.step(actions)[0]
    return float(returns.mean()), float(returns.std() / np.sqrt(episodes))


@pytest.mark.parametrize(
    ("red_agent", "steps", "published"),
    [
        ("bline", 30, -218.65),
        ("bline", 50, -480.17),
        ("bline", 100, -1134.03),
        ("meander", 30, -39.31),
        ("meander", 50, -267.6),
        ("meander", 100, -972.43),
    ],
)
def test_a_sleeping_defender_scores_as_published(red_agent: str, steps: int, published: float) -> None:
    mean, _ = total(red_agent, steps, episodes=4000 if steps == 30 else 1000)  # short games vary more
    assert mean == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("red_agent", "steps", "published"),
    [
        ("bline", 30, -154),
        ("bline", 50, -347),
        ("bline", 100, -727),
        ("meander", 30, -33),
        ("meander", 50, -171),
        ("meander", 100, -566),
    ],
)
def test_a_random_defender_scores_as_published(red_agent: str, steps: int, published: float) -> None:
    """The published means are of 40 episodes, with a standard error of about 15 %."""
    mean, error = total(red_agent, steps, random=True)
    assert abs(mean - published) < 2 * np.hypot(error, 0.15 * published)


def test_bline_strikes_at_step_15_at_the_earliest() -> None:
    network = begun(500, red_agent="bline")
    stopped = [float((take(network, "Sleep"), network.ot_stopped().mean())[1]) for _ in range(16)]
    assert stopped[13] == 0
    assert 0 < stopped[14] < 1
