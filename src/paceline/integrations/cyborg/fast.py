"""Accelerates CybORG steps by skipping work that does not affect the game. Results are bit-identical.

Each acceleration replaces methods of the objects of one game, so other games in the process are not affected. Calls
outside a step (the true table, the state of an agent) still get complete results.
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
"""Reward calculators that read only Red's sessions, operating systems and OTService from the true state."""

ACTIVITY_BITS = {"None": (0, 0), "Scan": (1, 0), "Exploit": (1, 1)}
BELIEF_BITS = {"No": (0, 0), "Unknown": (1, 0), "User": (0, 1), "Privileged": (1, 1)}
ROW_BITS = {(a, b): (*bits, *more) for a, bits in ACTIVITY_BITS.items() for b, more in BELIEF_BITS.items()}


def reward(parts: Parts) -> None:
    """Build only the part of the true state that reward calculators read.

    Raises:
        ConfigError: The game has a reward calculator that is not in `CALCULATORS`.
    """
    controller = parts.controller
    for interface in controller.agent_interfaces.values():
        name = type(interface.reward_calculator).__name__
        if name not in CALCULATORS:
            raise ConfigError(
                f"fast: reward calculator {name!r} is not known, and may read more of the true state than "
                f"{RED}'s sessions. Use fast=false, or name the accelerations without 'reward'."
            )
    stock_step, stock_state = controller.step, controller.get_true_state
    view = _RewardView(controller.state)
    stepping = False

    def step(agent: str | None = None, *args: Any, **kwargs: Any) -> Any:
        nonlocal stepping
        stepping = agent is not None  # without an agent, `step` returns the true state, which must be complete
        try:
            return stock_step(agent, *args, **kwargs)
        finally:
            stepping = False

    def get_true_state(info: dict[str, Any]) -> Any:
        return view.now() if stepping and info is controller.INFO_DICT["True"] else stock_state(info)

    controller.step, controller.get_true_state = step, get_true_state


class _RewardView:
    """The part of the true state that rewards depend on, in the same format as the true state."""

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
        """Read the hosts again after a reset, which creates new ones."""
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
        # A host that has lost OTService counts as disrupted only while other processes are visible there.
        if name in self._ot_hosts and any(map(self._visible, host.processes)):
            return [{"Process Name": ""}]
        return []

    def _visible(self, process: Any) -> bool:
        """Whether the true state shows a process: connections to addresses outside the network hide it."""
        return all(
            connection[end] in self._addresses
            for connection in process.connections
            for end in ("local_address", "remote_address")
            if end in connection
        )


class _Shown:
    """A true state without addresses, so that there is nothing to filter."""

    __slots__ = ("data",)

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def filter_addresses(self, **_: Any) -> None:
        """Nothing to do."""


def actions(parts: Parts) -> None:
    """Cache the list of the defender's actions and rebuild it only if its inputs have changed."""
    wrapper = parts.enumerated
    stock = wrapper.action_space_change
    names = ["action"]  # of the inputs: the classes of actions, and the parameters of these classes
    made_of: list[tuple[Any, ...]] = []
    made: list[Any] = []

    def action_space_change(space: dict[str, Any]) -> int:
        nonlocal names, made_of, made
        if [tuple(space[name]) for name in names] != made_of:
            stock(space)
            made = wrapper.possible_actions
            parameters = {name for kind in space["action"] for name in wrapper.action_signature[kind]}
            names = ["action", *sorted(parameters - {"priority"})]
            made_of = [tuple(space[name]) for name in names]
        wrapper.possible_actions = made
        return len(made)

    wrapper.action_space_change = action_space_change


def table(parts: Parts) -> None:
    """Compute the 52 bits from the defender's table without rendering it and without unneeded deep copies."""
    blue, true = parts.blue_table, parts.true_table

    def vector(success: Any) -> NDArray[np.int64]:
        del success
        return np.array([bit for row in blue.info.values() for bit in ROW_BITS[row[3], row[4]]])

    blue.observation_change = with_names(blue.observation_change, deepcopy=dict)
    blue._process_anomalies = with_names(blue._process_anomalies, deepcopy=_copy_rows)
    blue._create_vector = vector
    true._update_scanned = with_names(true._update_scanned, deepcopy=dict)


def addresses(parts: Parts) -> None:
    """Convert the addresses of the network to text once per episode instead of five times per step."""
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
        if len(obs.data) > 1:  # it has hosts, not only the key `success`
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
"""Accelerations by the names that the argument `fast` of the env accepts."""


def build_fast(red_agent: str, *, green: bool, names: Collection[str]) -> Parts:
    """Make a game with the named accelerations.

    Raises:
        ConfigError: A name is unknown, or an acceleration does not support this version of CybORG.
    """
    for name in names:
        if name not in ACCELERATIONS:
            raise ConfigError(f"fast={name!r}: no such acceleration. {nearest(name, ACCELERATIONS)}")
    with scenario_read_once() if "reset" in names else nullcontext():
        parts = build(red_agent, green=green)
    for name, accelerate in ACCELERATIONS.items():
        if name in names:
            accelerate(parts)
    return parts


def _copy_rows(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: row[:] for name, row in rows.items()}
