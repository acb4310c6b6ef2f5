"""What CybORG need not do at every step, and is spared: the same games, bit for bit, in a fraction of the time.

Each acceleration changes methods of one game's objects. Other games in the process stay as they are, and what is asked
outside a step (a true table, an agent's state) is answered in full.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from ipaddress import IPv4Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError, nearest
from paceline.integrations.cyborg.fast_reset import reset, scenario_read_once
from paceline.integrations.cyborg.install import Parts, build
from paceline.integrations.cyborg.rebind import with_names

RED = "Red"
OT_SERVICE = "OTService"
CALCULATORS = {
    "HybridAvailabilityConfidentialityRewardCalculator",
    "HybridImpactPwnRewardCalculator",
    "EmptyRewardCalculator",
}
"""Reward calculators that are known to look at Red's sessions, operating systems and OTService only."""

ACTIVITY_BITS = {"None": (0, 0), "Scan": (1, 0), "Exploit": (1, 1)}
BELIEF_BITS = {"No": (0, 0), "Unknown": (1, 0), "User": (0, 1), "Privileged": (1, 1)}
ROW_BITS = {(a, b): (*bits, *more) for a, bits in ACTIVITY_BITS.items() for b, more in BELIEF_BITS.items()}


def reward(parts: Parts) -> None:
    """Show the reward calculators what they look at, and do not build the rest of the true state for them.

    Raises:
        ConfigError: There is a reward calculator that is not known.
    """
    controller = parts.controller
    for interface in controller.agent_interfaces.values():
        name = type(interface.reward_calculator).__name__
        if name not in CALCULATORS:
            raise ConfigError(
                f"fast: reward calculator {name!r} is not known, and may look at more of the true state than "
                f"{RED}'s sessions. Use fast=false, or name the accelerations without 'reward'."
            )
    stock_step, stock_state = controller.step, controller.get_true_state
    view = _RewardView(controller.state)
    stepping = False

    def step(agent: str | None = None, *args: Any, **kwargs: Any) -> Any:
        nonlocal stepping
        stepping = agent is not None  # Without an agent the true state is what the caller gets.
        try:
            return stock_step(agent, *args, **kwargs)
        finally:
            stepping = False

    def get_true_state(info: dict[str, Any]) -> Any:
        return view.now() if stepping and info is controller.INFO_DICT["True"] else stock_state(info)

    controller.step, controller.get_true_state = step, get_true_state


class _RewardView:
    """As much of the true state as rewards are made of, in the true state's own words."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._hosts: dict[str, Any] | None = None
        self._begin()

    def now(self) -> _Shown:
        if self._state.hosts is not self._hosts:
            self._begin()
        sessions = self._state.sessions[RED]
        data: dict[str, Any] = {"success": None}
        for name, host, system in self._static:
            held = host.sessions.get(RED)
            shown: dict[str, Any] = {"System info": system}
            if held:
                shown["Sessions"] = [{"Agent": RED, "Username": sessions[ident].username} for ident in held]
            processes = self._processes(name, host)
            if processes:
                shown["Processes"] = processes
            data[name] = shown
        return _Shown(data)

    def _begin(self) -> None:
        """A reset has made new hosts."""
        self._hosts = hosts = self._state.hosts
        self._static = [
            (name, host, {"Hostname": host.hostname, "OSType": host.os_type}) for name, host in hosts.items()
        ]
        self._addresses = {IPv4Address("0.0.0.0"), *self._state.ip_addresses}
        self._ot_hosts: set[str] = set()

    def _processes(self, name: str, host: Any) -> list[dict[str, str]]:
        for process in host.processes:
            if process.name == OT_SERVICE and self._visible(process):
                self._ot_hosts.add(name)
                return [{"Process Name": OT_SERVICE}]
        # A host that has lost it counts as disrupted only while other processes are seen there.
        if name in self._ot_hosts and any(map(self._visible, host.processes)):
            return [{"Process Name": ""}]
        return []

    def _visible(self, process: Any) -> bool:
        """Whether the true state has it: connections from or to addresses outside the network hide a process."""
        return all(
            connection[end] in self._addresses
            for connection in process.connections
            for end in ("local_address", "remote_address")
            if end in connection
        )


class _Shown:
    """A true state whose addresses need no filtering: it has none."""

    __slots__ = ("data",)

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def filter_addresses(self, **_: Any) -> None:
        """Nothing to do."""


def actions(parts: Parts) -> None:
    """Cache the defender's actions: rebuild them only when their inputs have changed, not at every step."""
    wrapper = parts.enumerated
    stock = wrapper.action_space_change
    asked: dict[tuple[Any, ...], list[str]] = {}
    made_of: tuple[Any, ...] = ()
    made: list[Any] = []

    def action_space_change(space: dict[str, Any]) -> int:
        nonlocal made_of, made
        classes = tuple(space["action"])
        names = asked.get(classes)
        key = () if names is None else (classes, *(tuple(space[name]) for name in names))
        if names is None or key != made_of:
            stock(space)
            made = wrapper.possible_actions
            names = sorted({name for kind in classes for name in wrapper.action_signature[kind]} - {"priority"})
            asked[classes] = names
            made_of = (classes, *(tuple(space[name]) for name in names))
        wrapper.possible_actions = made
        return len(made)

    wrapper.action_space_change = action_space_change


def table(parts: Parts) -> None:
    """Read the 52 bits from the defender's table without deep copies of what is only read, or drawing the table."""
    blue, true = parts.blue_table, parts.true_table

    def vector(success: Any) -> NDArray[np.int64]:
        del success
        return np.array([bit for row in blue.info.values() for bit in ROW_BITS[row[3], row[4]]])

    blue.observation_change = with_names(blue.observation_change, deepcopy=dict)
    blue._process_anomalies = with_names(blue._process_anomalies, deepcopy=_copy_rows)
    blue._create_vector = vector
    true._update_scanned = with_names(true._update_scanned, deepcopy=dict)


def addresses(parts: Parts) -> None:
    """Write the network's addresses as text once an episode, not five times a step."""
    controller = parts.controller
    ip_map = cidr_map = None
    ips: list[str] = []
    cidrs: dict[str | None, list[str]] = {}

    def filter_obs(obs: Any, agent_name: str | None = None) -> Any:
        nonlocal ip_map, cidr_map, ips
        if controller.hostname_ip_map is not ip_map or controller.subnet_cidr_map is not cidr_map:
            ip_map, cidr_map = controller.hostname_ip_map, controller.subnet_cidr_map
            ips = [str(address) for address in ip_map.values()]
            cidrs.clear()
        if len(obs.data) > 1:  # Beside `success` there are hosts.
            if agent_name not in cidrs:
                scenario = controller.scenario
                names = cidr_map if agent_name is None else scenario.get_agent_info(agent_name).allowed_subnets
                cidrs[agent_name] = [str(cidr_map[name]) for name in names]
            obs.filter_addresses(ips=ips, cidrs=cidrs[agent_name], include_localhost=False)
        return obs

    controller._filter_obs = filter_obs


ACCELERATIONS: dict[str, Callable[[Parts], None]] = {
    "reward": reward,
    "actions": actions,
    "table": table,
    "addresses": addresses,
    "reset": reset,
}
"""By the names that the env's `fast` takes."""


def build_fast(red_agent: str, *, green: bool, names: Collection[str]) -> Parts:
    """Make a game with these accelerations.

    Raises:
        ConfigError: A name is unknown, or this CybORG is not as expected.
    """
    for name in names:
        if name not in ACCELERATIONS:
            raise ConfigError(f"fast={name!r}: no such acceleration. {nearest(name, ACCELERATIONS)}")
    with scenario_read_once() if "reset" in names else nullcontext():
        parts = build(red_agent, green=green)
    for name, put in ACCELERATIONS.items():
        if name in names:
            put(parts)
    return parts


def _copy_rows(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: row[:] for name, row in rows.items()}
