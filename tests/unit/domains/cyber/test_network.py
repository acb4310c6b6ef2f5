"""The rules of the game, compared with a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domains.cyber.playing import Scripted, begun, enter_enterprise, number, seen, take
from tests.unit.domains.cyber.slow import SlowGame

from paceline.domains.cyber.actions import ACTION_HOST, ACTIONS, HOSTS
from paceline.domains.cyber.tables import ESCALATE, EXPLOIT, IMPACT, REST, SCAN
from paceline.errors import EnvError

GAMES, LONG = 4, 100


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**40),
    red_agent=st.sampled_from(["bline", "meander", "meander", "sleep"]),
    rules=st.sampled_from(["leaderboard-2022", "head"]),
    green=st.booleans(),
    q1=st.booleans(),
    calm=st.sampled_from([0.0, 0.5, 0.8, 0.95]),
    hosts=st.sets(st.integers(0, len(HOSTS) - 1), min_size=1),
)
def test_it_equals_the_slow_reference(
    seed: int, red_agent: str, rules: str, green: bool, q1: bool, calm: float, hosts: set[int]
) -> None:
    """Defenders sleep with probability `calm`, and else take a random action on one of `hosts`."""
    options = {"red_agent": red_agent, "rules": rules, "green": green, "q1": q1, "max_steps": LONG}
    network = begun(GAMES, seed, **options)
    slow = [SlowGame(seed + i, **options) for i in range(GAMES)]  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    choices = np.flatnonzero(np.isin(ACTION_HOST, list(hosts)))
    for game in slow:
        game.reset()
    for _ in range(LONG):
        actions = np.where(rng.random(GAMES) < calm, 0, rng.choice(choices, GAMES))
        expected = [game.step(int(action)) for game, action in zip(slow, actions, strict=True)]
        rewards, _ = network.step(actions)
        assert network.observe().tolist() == [obs for obs, _, _ in expected]
        assert rewards.tolist() == [reward for _, reward, _ in expected]
        assert network.true_state().tolist() == [truth for _, _, truth in expected]


SAMPLES = 2000


@pytest.mark.parametrize("q1", [True, False])
def test_impact_costs_until_the_server_is_restored(q1: bool) -> None:
    network = begun(1, q1=q1, red_agent="sleep")
    attacker = Scripted(network)
    enter_enterprise(attacker)

    def attack() -> float:
        for act in (SCAN, EXPLOIT, ESCALATE):
            attacker.do(act, "Op_Server0")
        attacker.act = IMPACT
        return float(take(network, "Sleep")[0])

    assert attack() == -11.0
    attacker.act = REST
    assert take(network, "Remove Op_Server0") == -11.0
    assert take(network, "Restore Op_Server0") == -1.0
    assert attack() == (-1.0 if q1 else -11.0)
    assert network.ot_stopped()[0] == (not q1)


def test_operational_hosts_need_an_enterprise_session() -> None:
    network = begun(1, red_agent="sleep")
    attacker = Scripted(network)
    enter_enterprise(attacker)
    assert attacker.do(SCAN, "Op_Server0")
    assert attacker.do(EXPLOIT, "Op_Server0")
    assert not attacker.do(EXPLOIT, "Op_Server0", "Restore Enterprise0")
    assert seen(network, "Op_Server0") == ["0001"]
    assert attacker.do(ESCALATE, "Op_Server0")
    assert attacker.do(IMPACT, "Op_Server0")
    assert network.ot_stopped()


@pytest.mark.parametrize(("rules", "success"), [("leaderboard-2022", 0.25), ("head", 1.0)])
def test_old_ports_are_remembered_under_the_old_rules(rules: str, success: float) -> None:
    network = begun(SAMPLES, red_agent="sleep", rules=rules)
    attacker = Scripted(network)
    attacker.do(SCAN, "Enterprise0", "DecoyApache Enterprise0")
    attacker.do(SCAN, "Enterprise0", "Restore Enterprise0")
    assert attacker.do(EXPLOIT, "Enterprise0").mean() == pytest.approx(success, abs=4 * np.sqrt(0.25 / SAMPLES))


def test_wrong_actions_are_refused_and_change_nothing() -> None:
    network = begun(2)
    for wrong in (-1, ACTIONS):
        with pytest.raises(EnvError, match=f"action {wrong} of game 1"):
            network.step(np.array([0, wrong]))
    assert network.steps.tolist() == [0, 0]
    assert number("Restore User4") == ACTIONS - 1
