"""The rules, against a slow telling of the same game and against the published tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domains.cyber.playing import Scripted, begun, enter_enterprise, number, seen, take
from tests.unit.domains.cyber.slow import SlowGame

from paceline.domains.cyber.actions import ACTION_HOST, ACTIONS, DECOYS, HOSTS
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
def test_it_is_the_slow_game(
    seed: int, red_agent: str, rules: str, green: bool, q1: bool, calm: float, hosts: set[int]
) -> None:
    """Defenders that sleep so often, and else do anything to some of the hosts."""
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


CLEAN = {
    "Defender": (0, 0),
    "Enterprise0": (1, 0),
    "Enterprise1": (0.9375, 0.0625),
    "Enterprise2": (0.9375, 0.0625),
    "Op_Host0": (1, 0),
    "Op_Host1": (1, 0),
    "Op_Host2": (1, 0),
    "Op_Server0": (1, 0),
    "User0": (1, 1),  # the foothold is privileged already
    "User1": (1, 0.75),
    "User2": (1, 0.75),
    "User3": (11 / 12, 0.75),
    "User4": (1, 0.8125),
}
GATEWAY: dict[str, float] = {"Apache": 0.25, "Haraka": 0.25, "Tomcat": 0.25, "Vsftpd": 0.25, "all": 1 / 12}
FEMITTER: dict[str, float] = {"Apache": 0.875, "Smss": 0.875, "Svchost": 0.875, "Tomcat": 0.875, "all": 0.8}
DECOYED: dict[str, dict[str, float]] = {
    "User0": FEMITTER,
    "User1": FEMITTER,
    "User2": {"Apache": 0.25, "Femitter": 0.25, "Tomcat": 0.25, "SSHD": 0.875, "all": 0.1},
    "User3": {"SSHD": 0.875, "Vsftpd": 11 / 12, "all": 0.875},
    "User4": {"Vsftpd": 1, "all": 1},
    "Enterprise0": GATEWAY,
    "Enterprise1": {"Femitter": 0.2, "all": 0.2},
    "Enterprise2": {"Femitter": 0.2, "all": 0.2},
    "Op_Host0": GATEWAY,
    "Op_Host1": GATEWAY,
    "Op_Host2": GATEWAY,
    "Op_Server0": GATEWAY,
    "Defender": {"Apache": 0, "Haraka": 0, "Tomcat": 0, "Vsftpd": 0, "all": 0},
}
SAMPLES = 2000


def exploited(host: str, decoys: list[str], seed: int) -> tuple[int, int]:
    """In how many of the samples one exploit of a host succeeds, and is privileged at once."""
    network = begun(SAMPLES, seed, red_agent="sleep")
    attacker = Scripted(network)
    if host.startswith("Op"):
        enter_enterprise(attacker)
    for decoy in decoys:
        attacker.do(REST, blue=f"Decoy{decoy} {host}")
    attacker.do(SCAN, host)
    success = attacker.do(EXPLOIT, host)
    return int(success.sum()), int((network.true_state()[:, HOSTS.index(host)] == 2).sum())


def chi_square(observed: list[int], expected: list[float]) -> tuple[float, int]:
    """The statistic and its degrees of freedom, over what is neither sure nor impossible; that must be exact."""
    statistic, freedom = 0.0, 0
    for count, share in zip(observed, expected, strict=True):
        if share in (0, 1):
            assert count == share * SAMPLES
        else:
            statistic += (count - SAMPLES * share) ** 2 / (SAMPLES * share * (1 - share))
            freedom += 1
    return statistic, freedom


def test_exploits_succeed_as_often_as_the_table_says() -> None:
    counts = [exploited(host, [], seed=10**6 * i) for i, host in enumerate(CLEAN)]
    statistic, freedom = chi_square([c for pair in counts for c in pair], [p for pair in CLEAN.values() for p in pair])
    assert statistic < freedom + 3 * np.sqrt(2 * freedom)


def test_decoys_deceive_as_often_as_the_table_says() -> None:
    rows = [(host, decoy, share) for host, of in DECOYED.items() for decoy, share in of.items()]
    counts = []
    for i, (host, decoy, _) in enumerate(rows):
        decoys = [name for name in DECOYED[host] if name != "all"] if decoy == "all" else [decoy]
        counts.append(exploited(host, decoys, seed=10**6 * i)[0])
    statistic, freedom = chi_square(counts, [share for _, _, share in rows])
    assert statistic < freedom + 3 * np.sqrt(2 * freedom)


def test_hosts_have_room_for_no_other_decoys() -> None:
    """Whatever else is placed changes nothing."""
    for host, of in DECOYED.items():
        network = begun(1, red_agent="sleep")
        before = network._words.copy()
        for decoy in DECOYS:
            if decoy not in of:
                take(network, f"Decoy{decoy} {host}")
        assert np.array_equal(network._words, before)


def after_two(network_seed: int, host: str, act: int, blue: str = "Sleep", n: int = 400) -> tuple[set[str], set[str]]:
    """Which bits a host shows right after an act on it that follows a scan, and a step later."""
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
    assert after_two(4, "Defender", EXPLOIT) == ({"1101"}, {"0001"})  # in vain
    assert after_two(5, "User2", EXPLOIT) == ({"1101", "1000"}, {"0001", "0000"})  # seen, or not
    assert after_two(6, "User3", EXPLOIT) == ({"1101", "1000", "0000"}, {"0001", "0000"})  # or of no such service
    assert after_two(7, "Op_Host0", SCAN) == ({"0000"}, {"0000"})  # out of reach
    # In the step of a decoy's placing a host with few ports seems quiet, one with many does not.
    assert after_two(8, "Enterprise0", SCAN, "DecoyApache Enterprise0") == ({"0000"}, {"0000"})
    assert after_two(9, "User2", SCAN, "DecoyApache User2") == ({"1000"}, {"0000"})


def test_nineteen_of_twenty_shells_are_seen() -> None:
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
def test_remove_ends_alerted_user_shells_alone(host: str, ended: float) -> None:
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


def test_without_enterprise_sessions_nothing_new_happens_in_operations() -> None:
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


@pytest.mark.parametrize(("rules", "broken"), [("leaderboard-2022", 1 / 6), ("head", 11 / 12)])
def test_restore_breaks_haraka_under_the_old_rules(rules: str, broken: float) -> None:
    network = begun(SAMPLES, red_agent="sleep", rules=rules)
    attacker = Scripted(network)
    attacker.do(REST, blue="Restore User3")
    attacker.do(SCAN, "User3")
    assert attacker.do(EXPLOIT, "User3").mean() == pytest.approx(broken, abs=4 * np.sqrt(0.25 / SAMPLES))


@pytest.mark.parametrize(("rules", "success"), [("leaderboard-2022", 0.25), ("head", 1.0)])
def test_old_ports_are_remembered_under_the_old_rules(rules: str, success: float) -> None:
    network = begun(SAMPLES, red_agent="sleep", rules=rules)
    attacker = Scripted(network)
    attacker.do(SCAN, "Enterprise0", "DecoyApache Enterprise0")
    attacker.do(SCAN, "Enterprise0", "Restore Enterprise0")
    assert attacker.do(EXPLOIT, "Enterprise0").mean() == pytest.approx(success, abs=4 * np.sqrt(0.25 / SAMPLES))


def test_rewards_are_the_prices_of_privileged_hosts() -> None:
    prices = dict.fromkeys(HOSTS, 0.1) | dict.fromkeys(["Enterprise0", "Enterprise1", "Enterprise2", "Op_Server0"], 1.0)
    for host in HOSTS:
        network = begun(1, red_agent="sleep")
        assert take(network, "Sleep") == 0
        network._words[0, HOSTS.index(host)] |= 4
        expected = 0.0 if host == "User0" else prices[host]
        assert take(network, "Sleep")[0] == -expected
        assert take(network, f"Restore {host}")[0] == -1.0  # its own price alone
        assert take(network, "Sleep")[0] == 0


def test_bline_strikes_at_step_15_at_the_earliest() -> None:
    network = begun(500, red_agent="bline")
    stopped = [float((take(network, "Sleep"), network.ot_stopped().mean())[1]) for _ in range(16)]
    assert stopped[13] == 0
    assert 0 < stopped[14] < 1


def test_wrong_actions_are_refused_and_change_nothing() -> None:
    network = begun(2)
    for wrong in (-1, ACTIONS):
        with pytest.raises(EnvError, match=f"action {wrong} of game 1"):
            network.step(np.array([0, wrong]))
    assert network.steps.tolist() == [0, 0]
    assert number("Restore User4") == ACTIONS - 1
