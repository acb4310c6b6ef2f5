"""Outcomes of exploits and decoys, compared with the published probabilities."""

from __future__ import annotations

import numpy as np
from tests.unit.domains.cyber.playing import Scripted, begun, enter_enterprise, take

from paceline.domains.cyber.actions import DECOYS, HOSTS
from paceline.domains.cyber.tables import EXPLOIT, REST, SCAN

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
    """Number of samples in which one exploit of a host succeeds, and in which it is privileged at once."""
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
    """The chi-square statistic and its degrees of freedom. Counts with probability 0 or 1 must be exact."""
    statistic, freedom = 0.0, 0
    for count, share in zip(observed, expected, strict=True):
        if share in (0, 1):
            assert count == share * SAMPLES
        else:
            statistic += (count - SAMPLES * share) ** 2 / (SAMPLES * share * (1 - share))
            freedom += 1
    return statistic, freedom


def test_exploits_succeed_as_often_as_published() -> None:
    counts = [exploited(host, [], seed=10**6 * i) for i, host in enumerate(CLEAN)]
    statistic, freedom = chi_square([c for pair in counts for c in pair], [p for pair in CLEAN.values() for p in pair])
    assert statistic < freedom + 3 * np.sqrt(2 * freedom)


def test_decoys_stop_exploits_as_often_as_published() -> None:
    rows = [(host, decoy, share) for host, of in DECOYED.items() for decoy, share in of.items()]
    counts = []
    for i, (host, decoy, _) in enumerate(rows):
        decoys = [name for name in DECOYED[host] if name != "all"] if decoy == "all" else [decoy]
        counts.append(exploited(host, decoys, seed=10**6 * i)[0])
    statistic, freedom = chi_square(counts, [share for _, _, share in rows])
    assert statistic < freedom + 3 * np.sqrt(2 * freedom)


def test_no_other_decoys_can_be_placed() -> None:
    """Placing any other decoy changes nothing."""
    for host, of in DECOYED.items():
        network = begun(1, red_agent="sleep")
        before = network._words.copy()
        for decoy in DECOYS:
            if decoy not in of:
                take(network, f"Decoy{decoy} {host}")
        assert np.array_equal(network._words, before)
