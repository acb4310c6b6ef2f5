"""The scripted attackers: published scores, and the order of their acts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.domains.cyber.playing import begun, take

from paceline.domains.cyber.actions import ACTIONS, HOSTS
from paceline.domains.cyber.attackers import ATTACKERS
from paceline.domains.cyber.scenario import RedAgent
from paceline.domains.cyber.tables import ESCALATE, EXPLOIT, IMPACT, PING, REST, SCAN


def total(red_agent: str, steps: int, *, random: bool = False, episodes: int = 1000) -> tuple[float, float]:
    """The mean return over episodes, and its standard error."""
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


def test_bline_reaches_impact_at_step_15_at_the_earliest() -> None:
    network = begun(500, red_agent="bline")
    stopped = [float((take(network, "Sleep"), network.ot_stopped().mean())[1]) for _ in range(16)]
    assert stopped[13] == 0
    assert 0 < stopped[14] < 1


def acts(red_agent: RedAgent, steps: int, *, seed: int = 0, failing: bool = False) -> list[tuple[int, str]]:
    """The acts and hosts of an attacker whose acts all succeed, or all fail."""
    attacker = ATTACKERS[red_agent](1)
    rng = np.random.default_rng(seed)

    def noise() -> NDArray[np.uint64]:
        return rng.integers(0, 2**32, 1, np.uint64)

    attacker.begin(np.arange(1), noise())
    result, reached = np.array([not failing]), np.ones(1, np.bool_)
    done = []
    for _ in range(steps):
        act, host = attacker.choose(noise())
        done.append((int(act[0]), HOSTS[host[0]]))
        attacker.learn(result, reached)
    return done


def test_bline_takes_the_same_way_through_one_user_and_one_enterprise_host() -> None:
    for seed in range(8):
        done = acts("bline", 18, seed=seed)
        user = done[1][1]
        enterprise = "Enterprise1" if user in ("User1", "User2") else "Enterprise0"
        first = [(PING, "User0"), *((act, host) for host in (user, enterprise) for act in (SCAN, EXPLOIT, ESCALATE))]
        then = [(act, host) for host in ("Enterprise2", "Op_Server0") for act in (SCAN, EXPLOIT, ESCALATE)]
        assert done == [*first, (PING, "Enterprise0"), *then, *[(IMPACT, "Op_Server0")] * 4]
    assert len({acts("bline", 2, seed=seed)[1] for seed in range(40)}) == 4


def test_meander_scans_all_that_it_knows_before_it_exploits() -> None:
    done = acts("meander", 60)
    assert done[0] == (PING, "User0")
    users = {f"User{i}" for i in range(5)}
    assert {host for act, host in done[1:6] if act == SCAN} == users
    exploited = [host for act, host in done if act == EXPLOIT]
    assert len(exploited) == len(set(exploited)) >= 6
    for host in exploited:
        assert done.index((SCAN, host)) < done.index((EXPLOIT, host))
    for act, host in done:
        if act == ESCALATE and host != "User0":  # on User0 it has a session from the beginning
            assert done.index((EXPLOIT, host)) < done.index((ESCALATE, host))
    assert done.count((PING, "Enterprise0")) == 1
    assert done[-1] == (IMPACT, "Op_Server0")


def test_meander_repeats_what_failed_but_pings_and_scans_once() -> None:
    done = acts("meander", 30, failing=True)
    assert [act for act, _ in done].count(PING) == 1
    assert len([one for one in done if one[0] == SCAN]) == len({one for one in done if one[0] == SCAN})
    assert len(done) > len(set(done))


def test_sleep_rests() -> None:
    assert set(acts("sleep", 5)) == {(REST, "User0")}
