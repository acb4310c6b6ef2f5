"""Helpers to play network defence in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTION_HOST, ACTION_KIND, HOSTS, KINDS
from paceline.domains.cyber.network import Network
from paceline.domains.cyber.scenario import Scenario
from paceline.domains.cyber.tables import EXPLOIT, PING, REST, SCAN


def begun(n: int, seed: int = 0, **settings: Any) -> Network:
    """n games with consecutive seeds, at the start of their first episode."""
    network = Network(n, Scenario(**settings))
    rows = np.arange(n)
    network.seed(rows, rows.astype(np.uint64) + np.uint64(seed))
    network.begin(rows)
    return network


def action_name(action: int) -> str:
    """The name of an action, such as `Restore Op_Server0`."""
    kind, host = KINDS[ACTION_KIND[action]], int(ACTION_HOST[action])
    return kind if host < 0 else f"{kind} {HOSTS[host]}"


def number(name: str) -> int:
    """The number of an action, by a name such as `Restore User1`."""
    kind, _, host = name.partition(" ")
    place = KINDS.index(kind)
    return place if place < 2 else 2 + (place - 2) * len(HOSTS) + HOSTS.index(host)


def take(network: Network, name: str) -> NDArray[np.float64]:
    """Take the same action in every game; returns the rewards."""
    return network.step(np.full(network.n, number(name)))[0]


def seen(network: Network, host: str) -> list[str]:
    """The four bits of a host in each game's observation."""
    bits = network.observe().reshape(network.n, len(HOSTS), 4)[:, HOSTS.index(host)]
    return ["".join(str(int(bit)) for bit in row) for row in bits]


class Scripted:
    """An attacker that plays a fixed script, the same in all games, and records the results."""

    def __init__(self, network: Network) -> None:
        self.n = network.n
        self.act, self.host = REST, 0
        self.success = self.reached = np.zeros(self.n, np.bool_)
        network._attacker = self
        self._network = network

    def begin(self, rows: Any, noise: Any) -> None: ...

    def choose(self, noise: Any) -> Any:
        return np.full(self.n, self.act), np.full(self.n, self.host)

    def learn(self, success: Any, reached: Any) -> None:
        self.success, self.reached = success, reached

    def do(self, act: int, host: str = "User0", blue: str = "Sleep") -> NDArray[np.bool_]:
        """Step all games with this act; returns for each whether it succeeded."""
        self.act, self.host = act, HOSTS.index(host)
        take(self._network, blue)
        return self.success


def enter_enterprise(attacker: Scripted) -> None:
    """Put a session on Enterprise0, from which every host can be reached."""
    for act in (PING, SCAN, EXPLOIT):
        attacker.do(act, "Enterprise0")
    assert attacker.success.all()
