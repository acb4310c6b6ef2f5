"""Services and decoys on the hosts, and the outcome of exploits, as tables.

The *setup* of a host is a number below 32: bit 0 is set if its Haraka is broken, bits 1 to 4 are the decoys that are
placed there, in the order of `DECOYS_OF`. All tables are indexed by host and setup.

    OPTIONS     the exploits that a scan of the host makes possible, as bits in the order of `EXPLOITS`
    OUTCOME     the outcome of an exploit
    PORTS       number of open ports, at most 3 (more make no difference to the defender)
    PLACED      whether a decoy can be placed
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import DECOYS, HOSTS

EXPLOITS = {
    "FTP": 21,
    "Haraka": 25,
    "SQL": 3390,
    "HTTPS": 443,
    "HTTP": 80,
    "EternalBlue": 139,
    "BlueKeep": 3389,
    "SSH": 22,
}
"""The attacker's exploits and their ports, the preferred ones first."""
FAVOURITE = 0.75
"""Probability that the attacker takes the first of several options; else one of the others, uniformly."""
SEEN = 0.95
"""Probability that a new reverse shell raises an alert."""

NOTHING, REFUSED, DECOYED, SSH_REFUSED, SSH_IN, SHELL, ROOT_SHELL = range(7)
"""Outcomes of an exploit: no such service; the service resists; a decoy; a password that cannot be guessed; and three
kinds of access: SSH, a user shell, a root shell."""
SETUPS = 32


_GATEWAY = {22: SSH_IN}
_FEMITTER = {22: SSH_IN, 21: ROOT_SHELL}
_WEB = {80: SHELL, 443: SHELL}
_INTERNAL = {22: SSH_IN, **_WEB, 3389: ROOT_SHELL, 135: None, 139: None, 445: None}

SERVICES: dict[str, Mapping[int, int | None]] = {
    "Defender": {22: SSH_REFUSED, 53: None, 68: None},
    "Enterprise0": _GATEWAY,
    "Enterprise1": _INTERNAL,
    "Enterprise2": _INTERNAL,
    "Op_Host0": _GATEWAY,
    "Op_Host1": _GATEWAY,
    "Op_Host2": _GATEWAY,
    "Op_Server0": _GATEWAY,
    "User0": _FEMITTER,
    "User1": _FEMITTER,
    "User2": {139: ROOT_SHELL, 3389: SHELL, 135: None, 445: None},
    "User3": {25: ROOT_SHELL, **_WEB, 3389: None},
    "User4": {22: SSH_IN, 25: ROOT_SHELL, **_WEB, 3390: ROOT_SHELL},
}
"""The open ports of each host and the outcomes of their exploits; None for a service without an exploit."""
_WINDOWS = {"Enterprise1", "Enterprise2", "User0", "User1", "User2"}

_DECOY_PORT = {
    "Apache": 80,
    "Femitter": 21,
    "Haraka": 25,
    "Smss": 139,
    "SSHD": 22,
    "Svchost": 3389,
    "Tomcat": 443,
    "Vsftpd": 80,
}
_NEEDS_WINDOWS, _NEEDS_LINUX = {"Femitter", "Smss", "Svchost"}, {"Haraka", "Vsftpd"}
# Vsftpd opens port 80 but requires port 21 to be free, so it can be placed beside a web server or a second time.
_NEEDS_FREE = {**_DECOY_PORT, "Vsftpd": 21}


def _suits(decoy: str, host: str) -> bool:
    """Whether a decoy can be placed on a host without other decoys."""
    barred = _NEEDS_LINUX if host in _WINDOWS else _NEEDS_WINDOWS
    return decoy not in barred and _NEEDS_FREE[decoy] not in SERVICES[host]


DECOYS_OF: tuple[tuple[str, ...], ...] = tuple(
    tuple(decoy for decoy in DECOYS if _suits(decoy, host)) for host in HOSTS
)
"""[13] the decoys that can be placed on each host, at most four."""


def _standing(host: int, number: int) -> tuple[str, ...]:
    """The decoys of a setup."""
    return tuple(decoy for place, decoy in enumerate(DECOYS_OF[host]) if number >> 1 + place & 1)


def _open_ports(host: int, decoys: tuple[str, ...]) -> set[int]:
    return {*SERVICES[HOSTS[host]], *(_DECOY_PORT[decoy] for decoy in decoys)}


def _offers(ports: set[int]) -> int:
    """The exploits that open ports make possible, as bits."""
    found = {name for name, port in EXPLOITS.items() if port in ports}
    if not ports & {80, 443}:
        found.discard("SQL")  # SQL injection needs a web server
    return sum(1 << bit for bit, name in enumerate(EXPLOITS) if name in found)


def _meets(host: int, number: int, exploit: str) -> int:
    """The outcome of an exploit; a real service answers before a decoy on the same port."""
    port = EXPLOITS[exploit]
    if (outcome := SERVICES[HOSTS[host]].get(port)) is not None:
        return REFUSED if exploit == "Haraka" and number & 1 else outcome
    if any(_DECOY_PORT[decoy] == port for decoy in _standing(host, number)):
        return SSH_REFUSED if exploit == "SSH" else DECOYED
    return NOTHING


def _placed(host: int, number: int, decoy: str) -> bool:
    standing = _standing(host, number)
    return decoy in DECOYS_OF[host] and all(_DECOY_PORT[other] != _NEEDS_FREE[decoy] for other in standing)


_PAIRS = [(host, number) for host in range(len(HOSTS)) for number in range(SETUPS)]
_SHAPE = (len(HOSTS), SETUPS)

OPTIONS: NDArray[np.int64] = np.array([_offers(_open_ports(h, _standing(h, s))) for h, s in _PAIRS]).reshape(_SHAPE)
PORTS: NDArray[np.int64] = np.array([min(3, len(_open_ports(h, _standing(h, s)))) for h, s in _PAIRS]).reshape(_SHAPE)
OUTCOME: NDArray[np.int64] = np.array([[_meets(h, s, name) for name in EXPLOITS] for h, s in _PAIRS]).reshape(
    *_SHAPE, len(EXPLOITS)
)
PLACED: NDArray[np.bool_] = np.array([[_placed(h, s, decoy) for decoy in DECOYS] for h, s in _PAIRS]).reshape(
    *_SHAPE, len(DECOYS)
)
"""[13, 32, 8]"""
