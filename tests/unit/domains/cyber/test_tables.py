"""Effects of actions and acts on a host: the bits that the defender sees, sessions and costs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.cyber.playing import Scripted, begun, seen, take

from paceline.domains.cyber.actions import HOSTS
from paceline.domains.cyber.tables import ESCALATE, EXPLOIT, REST, SCAN

SAMPLES = 2000


def after_two(network_seed: int, host: str, act: int, blue: str = "Sleep", n: int = 400) -> tuple[set[str], set[str]]:
    """The sets of bits of a host right after a scan and an act on it, and one step later."""
    network = begun(n, network_seed, red_agent="sleep")
    attacker = Scripted(network)
    attacker.do(SCAN, host)
    attacker.do(act, host, blue)
    now = set(seen(network, host))
    attacker.do(REST)
    return now, set(seen(network, host))


def test_bits_of_scans_and_exploits() -> None:
    assert after_two(1, "User1", REST) == ({"0000"}, {"0000"})
    assert after_two(2, "User1", SCAN) == ({"1000"}, {"0000"})
    assert after_two(3, "Enterprise0", EXPLOIT) == ({"1101"}, {"0001"})  # brute force
    assert after_two(4, "Defender", EXPLOIT) == ({"1101"}, {"0001"})  # the password cannot be guessed
    assert after_two(5, "User2", EXPLOIT) == ({"1101", "1000"}, {"0001", "0000"})  # seen, or not
    assert after_two(6, "User3", EXPLOIT) == ({"1101", "1000", "0000"}, {"0001", "0000"})  # or of no such service
    assert after_two(7, "Op_Host0", SCAN) == ({"0000"}, {"0000"})  # out of reach
    # In the step in which a decoy is placed, a scan of a host with few ports is not shown.
    assert after_two(8, "Enterprise0", SCAN, "DecoyApache Enterprise0") == ({"0000"}, {"0000"})
    assert after_two(9, "User2", SCAN, "DecoyApache User2") == ({"1000"}, {"0000"})


def test_95_percent_of_shells_raise_an_alert() -> None:
    network = begun(4000, red_agent="sleep")
    attacker = Scripted(network)
    for act in (SCAN, EXPLOIT):
        attacker.do(act, "User2")
    assert seen(network, "User2").count("1101") == pytest.approx(3800, abs=3 * np.sqrt(4000 * 0.95 * 0.05))


def test_bits_of_belief() -> None:
    network = begun(200, 3, red_agent="sleep")
    attacker = Scripted(network)
    for act in (SCAN, EXPLOIT):
        attacker.do(act, "Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"1101"}
    take(network, "Analyse Enterprise0")  # brute force leaves no file
    attacker.do(ESCALATE, "Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"0001"}  # and escalation is not seen
    attacker.do(EXPLOIT, "Enterprise0", "Analyse Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"1111"}
    attacker.do(EXPLOIT, "Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"1101"}  # an alert overwrites
    attacker.do(REST, blue="Remove Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"0010"}
    take(network, "Analyse Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"0011"}  # the file survived Remove
    take(network, "Restore Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"0000"}
    take(network, "Remove Enterprise0")
    take(network, "Analyse Enterprise0")
    assert set(seen(network, "Enterprise0")) == {"0000"}


@pytest.mark.parametrize(
    ("host", "ended"),
    [
        ("User1", 0.0),
        ("User2", 0.25 * 0.95),
        ("User3", 0.95 / 6),
        ("Enterprise0", 0.0),
        ("Enterprise1", 13 / 16 * 0.95),
    ],
)
def test_remove_ends_only_user_shells_with_an_alert(host: str, ended: float) -> None:
    network = begun(SAMPLES, 7, red_agent="sleep")
    attacker = Scripted(network)
    attacker.do(SCAN, host)
    attacker.do(EXPLOIT, host)
    place = HOSTS.index(host)
    held = network.true_state()[:, place] > 0
    before = network.true_state()[:, place]
    attacker.do(REST, blue=f"Remove {host}")
    gone = held & (network.true_state()[:, place] == 0)
    assert not (gone & (before == 2)).any()
    assert gone.mean() == pytest.approx(ended, abs=4 * np.sqrt(0.25 / SAMPLES) if ended else 0)


@pytest.mark.parametrize(("rules", "broken"), [("leaderboard-2022", 1 / 6), ("head", 11 / 12)])
def test_restore_breaks_haraka_under_the_old_rules(rules: str, broken: float) -> None:
    network = begun(SAMPLES, red_agent="sleep", rules=rules)
    attacker = Scripted(network)
    attacker.do(REST, blue="Restore User3")
    attacker.do(SCAN, "User3")
    assert attacker.do(EXPLOIT, "User3").mean() == pytest.approx(broken, abs=4 * np.sqrt(0.25 / SAMPLES))


def test_rewards_are_the_costs_of_privileged_hosts() -> None:
    prices = dict.fromkeys(HOSTS, 0.1) | dict.fromkeys(["Enterprise0", "Enterprise1", "Enterprise2", "Op_Server0"], 1.0)
    for host in HOSTS:
        network = begun(1, red_agent="sleep")
        assert take(network, "Sleep") == 0
        network._words[0, HOSTS.index(host)] |= 4
        expected = 0.0 if host == "User0" else prices[host]
        assert take(network, "Sleep")[0] == -expected
        assert take(network, f"Restore {host}")[0] == -1.0  # the cost of Restore alone
        assert take(network, "Sleep")[0] == 0
