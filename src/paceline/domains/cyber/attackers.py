"""The scripted attackers B_line, Meander and Sleep, each for n games at once, with hosts as numbers and bits.

Each turn an attacker chooses an act (`REST` to `IMPACT`) and a host, and then gets to know whether it succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import HOSTS
from paceline.domains.cyber.scenario import RedAgent
from paceline.domains.cyber.tables import (
    ESCALATE,
    EXPLOIT,
    IMPACT,
    OP_SERVER0,
    PING,
    RED_KINDS,
    REST,
    SCAN,
    USER0,
)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
GameRows = NDArray[np.intp]

_32 = np.uint64(32)
_N = len(HOSTS)
_HOST = {host: number for number, host in enumerate(HOSTS)}


class Attacker(Protocol):
    """An attacker in each of n games."""

    def begin(self, rows: GameRows, noise: NDArray[np.uint64]) -> None:
        """Begin an episode in these games.

        Args:
            rows: [k] the games.
            noise: [k] 32 random bits each.
        """

    def choose(self, noise: NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Choose an act and a host [n] in each game; the host of a ping stands for its subnet.

        Args:
            noise: [n] 32 random bits each.
        """

    def learn(self, success: Flags, reached: Flags) -> None:
        """Take note of the results of the chosen acts.

        Args:
            success: [n] whether the act succeeded.
            reached: [n] whether its host could be reached.
        """


class Sleep:
    """Attacker that does nothing."""

    def __init__(self, n: int) -> None:
        self._act, self._host = np.full(n, REST), np.full(n, USER0)

    def begin(self, rows: GameRows, noise: NDArray[np.uint64]) -> None:
        """Does nothing: this attacker has no state."""

    def choose(self, noise: NDArray[np.uint64]) -> tuple[Ints, Ints]:  # noqa: ARG002 - the protocol's
        """Rest."""
        return self._act, self._host

    def learn(self, success: Flags, reached: Flags) -> None:
        """Does nothing: this attacker has no state."""


_ENTERPRISE = {"User1": "Enterprise1", "User2": "Enterprise1", "User3": "Enterprise0", "User4": "Enterprise0"}
"""The Enterprise host that privilege escalation on a user host reveals."""
_SCRIPT = (
    (PING, "User0"),
    (SCAN, "user"),
    (EXPLOIT, "user"),
    (ESCALATE, "user"),
    (SCAN, "enterprise"),
    (EXPLOIT, "enterprise"),
    (ESCALATE, "enterprise"),
    (PING, "Enterprise0"),
    (SCAN, "Enterprise2"),
    (EXPLOIT, "Enterprise2"),
    (ESCALATE, "Enterprise2"),
    (SCAN, "Op_Server0"),
    (EXPLOIT, "Op_Server0"),
    (ESCALATE, "Op_Server0"),
    (IMPACT, "Op_Server0"),
)
_STATES = len(_SCRIPT)
_ACTS = np.array([act for act, _ in _SCRIPT])
_TARGETS = np.array(
    [
        [_HOST[{"user": user, "enterprise": enterprise}.get(host, host)] for _, host in _SCRIPT]
        for user, enterprise in _ENTERPRISE.items()
    ]
)
"""[user, state] target host. The user host is drawn per episode; it determines the Enterprise host."""
_AFTER = np.array([[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13], [*range(1, _STATES), _STATES - 1]])
"""[success, state] the next state."""
_EXPLOIT_SERVER = _SCRIPT.index((EXPLOIT, "Op_Server0"))


class Bline:
    """Attacker on the direct path: user host, the Enterprise host it reveals, Enterprise2, Op_Server0, then Impact."""

    def __init__(self, n: int) -> None:
        self._targets = np.zeros((n, _STATES), np.int64)
        self._state = np.zeros(n, np.int64)
        self._success = np.zeros(n, np.bool_)
        self._lost = np.zeros(n, np.bool_)  # the last scan showed nothing, and the server was never attacked
        self._attacked = np.zeros(n, np.bool_)
        self._base = np.arange(n) * _STATES

    def begin(self, rows: GameRows, noise: NDArray[np.uint64]) -> None:
        """Pick the user host of each game."""
        self._targets[rows] = _TARGETS[noise * np.uint64(4) >> _32]
        for array in (self._state, self._success, self._lost, self._attacked):
            array[rows] = 0

    def choose(self, noise: NDArray[np.uint64]) -> tuple[Ints, Ints]:  # noqa: ARG002 - the protocol's
        """The act of the next state."""
        state = _AFTER.take(self._success * _STATES + self._state)
        serving = state == _EXPLOIT_SERVER
        # If the last scan showed no port to exploit, it starts again at state 1, the scan of the user host.
        np.copyto(state, 1, where=serving & self._lost)
        self._attacked |= serving & ~self._lost
        self._state = state
        return _ACTS.take(state), self._targets.take(self._base + state)

    def learn(self, success: Flags, reached: Flags) -> None:
        """Store the results for the next choice."""
        self._success = success
        self._lost = ~(reached | self._attacked)


def _bits(*hosts: str) -> int:
    return sum(1 << _HOST[host] for host in hosts)


_USER_NET, _ENTERPRISE_NET, _OPERATIONAL_NET = 1 << _N, 2 << _N, 4 << _N
"""Bits of the subnets, above the bits of the hosts."""
_ADDRESSES = (1 << _N) - 1
_OPS = _bits("Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0")
_ENTERPRISES = _bits("Enterprise0", "Enterprise1", "Enterprise2")
_PING_FINDS = {
    "User0": _bits("User0", "User1", "User2", "User3", "User4"),
    "Enterprise0": _ENTERPRISES | _bits("Defender"),
    "Op_Server0": _OPS,
}
"""Hosts that a ping of a subnet finds, by the host that stands for the subnet."""
_REVEALS = {
    **{user: _bits(enterprise) for user, enterprise in _ENTERPRISE.items()},
    "Enterprise0": _ENTERPRISE_NET,
    "Enterprise1": _ENTERPRISE_NET,
    "Enterprise2": _ENTERPRISE_NET | _bits("Op_Server0"),
    **{f"Op_{host}": _OPERATIONAL_NET for host in ("Host0", "Host1", "Host2", "Server0")},
}

_EACH = 1 << np.arange(_N)


def _by_act(given: dict[int, Ints]) -> Ints:
    """[acts * hosts] bits for an act on a host; 0 for acts that are not given."""
    table = np.zeros((RED_KINDS, _N), np.int64)
    for act, bits in given.items():
        table[act] = bits
    return table.ravel()


def _per_host(of: dict[str, int]) -> Ints:
    return np.array([of.get(host, 0) for host in HOSTS])


_NET_OF = {"User0": _USER_NET, "Enterprise0": _ENTERPRISE_NET, "Op_Server0": _OPERATIONAL_NET}
_LEARNT = _by_act({PING: _per_host(_PING_FINDS), ESCALATE: _per_host(_REVEALS)})
_LOOKED_AT = _by_act({PING: _per_host(_NET_OF), SCAN: _EACH})
_EXPLOITED = _by_act({EXPLOIT: _EACH})
_ESCALATED = _by_act({ESCALATE: _EACH})
_NOT_EXPLOITED = _by_act({EXPLOIT: _EACH, ESCALATE: _EACH, IMPACT: _EACH})
_NOT_ESCALATED = _by_act({ESCALATE: _EACH, IMPACT: _EACH})

_PING_AT = np.array([0, USER0, _HOST["Enterprise0"], 0, OP_SERVER0])
"""The host that stands for a subnet in a ping, by the subnet's bit."""
_COUNT = np.array([mask.bit_count() for mask in range(1 << _N)], np.uint64)
_NTH = np.zeros((1 << _N, _N), np.int64)
"""[set of hosts, n] the n-th host of the set."""
for _host in range(_N):
    _with = np.flatnonzero(np.arange(1 << _N) >> _host & 1)
    _NTH[_with, _COUNT[_with & (1 << _host) - 1].astype(np.int64)] = _host


class Meander:
    """Attacker that takes every host: it scans all known hosts first, then exploits and escalates in random order."""

    def __init__(self, n: int) -> None:
        self._known = np.zeros(n, np.int64)  # hosts by address, and subnets
        self._looked_at = np.zeros(n, np.int64)
        self._exploited = np.zeros(n, np.int64)
        self._escalated = np.zeros(n, np.int64)
        self._act = self._done = np.zeros(n, np.int64)

    def begin(self, rows: GameRows, noise: NDArray[np.uint64]) -> None:  # noqa: ARG002 - the protocol's
        """Reset its knowledge to User0 and the user subnet."""
        self._known[rows] = 1 << USER0 | _USER_NET
        for array in (self._looked_at, self._exploited, self._escalated):
            array[rows] = 0

    def choose(self, noise: NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Choose the first possible act of Impact, ping, scan, escalate, exploit, on a random host."""
        known, exploited, escalated = self._known, self._exploited, self._escalated
        new = known & ~self._looked_at
        scan = new & _ADDRESSES
        escalate = (exploited | 1 << USER0) & ~escalated  # its own host too, once
        exploit = known & ~exploited & _ADDRESSES
        # In reverse order of preference: a later assignment overwrites an earlier one.
        able = escalate != 0
        among, act = np.where(able, escalate, exploit), np.where(able, ESCALATE, EXPLOIT)
        able = scan != 0
        np.copyto(among, scan, where=able)
        np.copyto(act, SCAN, where=able)
        able = new > _ADDRESSES
        np.copyto(among, 1 << _PING_AT.take(new >> _N), where=able)
        np.copyto(act, PING, where=able)
        able = escalated & 1 << OP_SERVER0 != 0
        np.copyto(among, 1 << OP_SERVER0, where=able)
        np.copyto(act, IMPACT, where=able)
        nth = (noise * _COUNT.take(among) >> _32).view(np.int64)
        host = _NTH.take(among * _N + nth)
        done = act * _N + host
        # Acts are assumed to succeed here; `learn` corrects this. A subnet is pinged once, even if the ping fails.
        self._looked_at |= _LOOKED_AT.take(done)
        exploited |= _EXPLOITED.take(done)
        escalated |= _ESCALATED.take(done)
        self._act, self._done = act, done
        return act, host

    def learn(self, success: Flags, reached: Flags) -> None:  # noqa: ARG002 - the protocol's
        """Note found hosts and failures.

        After a failed exploit it assumes that it has lost its operational hosts, or without any, its Enterprise hosts.
        """
        self._known |= _LEARNT.take(self._done) * success
        failed = ~success
        if not failed.any():
            return
        escalated = self._escalated
        ops = escalated & _OPS
        doubted = np.where(ops != 0, ops, escalated & _ENTERPRISES)
        doubted *= failed & (self._act == EXPLOIT)
        self._exploited &= ~(_NOT_EXPLOITED.take(self._done) * failed | doubted)
        escalated &= ~(_NOT_ESCALATED.take(self._done) * failed | doubted)


ATTACKERS: dict[RedAgent, Callable[[int], Attacker]] = {"bline": Bline, "meander": Meander, "sleep": Sleep}
"""Attacker classes by the value of the setting `red_agent`."""
