"""A small stand-in for CybORG with the part of its interface that the adapter uses.

Like CybORG it draws from the global `random`, makes deep copies, and rebuilds the true state and the actions at every
step. This one module stands for all of CybORG's modules. The attacker breaks into hosts at random, escalates, and stops
OTService; a Restore of Op_Server0 brings it back for the rest of the episode (Q1).
"""

from __future__ import annotations

import inspect
import io
import random
from copy import deepcopy
from ipaddress import IPv4Address, IPv4Network
from random import choice, randrange, sample
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import yaml

CYBORG_VERSION = "2.1"
SCENARIO = """
Subnets: {Enterprise: [Enterprise0, Enterprise1, Enterprise2, Defender],
          Operational: [Op_Server0, Op_Host0, Op_Host1, Op_Host2], User: [User0, User1, User2, User3, User4]}
Hosts: [Defender, Enterprise0, Enterprise1, Enterprise2, Op_Host0, Op_Host1, Op_Host2, Op_Server0,
        User0, User1, User2, User3, User4]
"""


class Observation:
    def __init__(self) -> None:
        self.data: dict[str, Any] = {"success": True}

    def filter_addresses(self, ips: Any, cidrs: Any, include_localhost: bool = True) -> None:
        assert not include_localhost
        kept = {str(ip) for ip in ips} | {"0.0.0.0"}
        nets = {str(cidr) for cidr in cidrs}
        for key, host in self.data.items():
            if key != "success" and "Processes" in host:
                host["Processes"] = [p for p in host["Processes"] if all(str(a) in kept for a in p["Addresses"])]
            if key != "success" and "Subnet" in host and str(host["Subnet"]) not in nets:
                del host["Subnet"]


class RedAbstractSession:
    def __init__(self, host: str, username: str) -> None:
        self.host, self.username = host, username

    def clearports(self) -> None: ...


class ProcessVersion:
    @staticmethod
    def parse_string(text: str) -> str:
        return text


class Process:
    def __init__(self, name: str, *addresses: str) -> None:
        self.name, self.pid = name, randrange(32768)
        self.connections = [{"local_address": IPv4Address(address)} for address in addresses]


class Host:
    def __init__(self, hostname: str) -> None:
        self.hostname, self.os_type = hostname, "LINUX"
        self.processes = [Process("sshd", "0.0.0.0"), Process("hidden", "127.0.0.1"), Process("client")]
        if hostname == "Op_Server0":
            self.processes.append(Process("OTService"))
        self.original_processes = deepcopy(self.processes)
        self.sessions: dict[str, list[int]] = {}
        self.events: list[str] = []
        self.stoppable = True

    def create_backup(self) -> None:
        self.original_processes = list(self.processes)

    def restore(self) -> None:
        self.processes, self.stoppable = list(self.original_processes), False


class State:
    def __init__(self, scenario: Any) -> None:
        self.scenario = scenario
        self._initialise_state(scenario)

    def reset(self) -> None:
        self._initialise_state(self.scenario)

    def _initialise_state(self, scenario: Any) -> None:
        self.hosts: dict[str, Any] = {}
        self.ip_addresses: dict[IPv4Address, str] = {}
        self.subnet_name_to_cidr: dict[str, IPv4Network] = {}
        cidrs = sample(list(IPv4Network("10.0.0.0/16").subnets(new_prefix=28)), len(scenario.subnets))
        for (name, hosts), cidr in zip(scenario.subnets.items(), cidrs, strict=True):
            self.subnet_name_to_cidr[name] = cidr
            self.ip_addresses.update(zip(sample(list(cidr.hosts()), len(hosts)), hosts, strict=True))
        for name in scenario.hosts:
            self.hosts[name] = Host(hostname=name)
        self.sessions: dict[str, dict[int, RedAbstractSession]] = {"Red": {}, "Blue": {}}
        for _ in ("Blue", "Green", "Red"):
            for host in self.hosts.values():
                host.create_backup()
        self.break_in("User0", "SYSTEM")

    def break_in(self, host: str, username: str) -> None:
        ident = len(self.sessions["Red"]) + randrange(1000) * 100
        self.sessions["Red"][ident] = RedAbstractSession(host, username)
        self.hosts[host].sessions.setdefault("Red", []).append(ident)
        self.hosts[host].events.append(choice(["Scan", "Exploit"]))

    def get_true_state(self, info: dict[str, Any]) -> Observation:
        obs = Observation()
        cidrs = {
            host: self.subnet_name_to_cidr[name] for name, hosts in self.scenario.subnets.items() for host in hosts
        }
        for name in info:
            host = self.hosts[name]
            obs.data[name] = {
                "System info": {"Hostname": name, "OSType": host.os_type},
                "Processes": [
                    {"Process Name": p.name, "PID": p.pid, "Addresses": [c["local_address"] for c in p.connections]}
                    for p in host.processes
                ],
                "Sessions": [
                    {"Agent": "Red", "Username": self.sessions["Red"][i].username, "ID": i}
                    for i in host.sessions.get("Red", [])
                ],
                "Subnet": cidrs[name],
            }
        return obs


class Action:
    def __init__(self, session: int, agent: str, hostname: str) -> None:
        self.session, self.agent, self.hostname = session, agent, hostname

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.hostname}"


class Sleep(Action):
    def __init__(self) -> None: ...

    def __str__(self) -> str:
        return "Sleep"


class Monitor(Action):
    def __init__(self, session: int, agent: str) -> None: ...

    def __str__(self) -> str:
        return "Monitor"


class Remove(Action): ...


class Restore(Action): ...


ON_HOSTS = "Analyse DecoyApache DecoyFemitter DecoyHarakaSMPT DecoySmss DecoySSHD DecoySvchost DecoyTomcat DecoyVsftpd"
MADE = {name: type(name, (Action,), {}) for name in ON_HOSTS.split()}
BLUE_ACTIONS = [Sleep, Monitor, MADE["Analyse"], Remove, *list(MADE.values())[1:], Restore]


class HybridAvailabilityConfidentialityRewardCalculator:
    ots: str | None = None

    def calculate_reward(self, state: dict[str, Any]) -> float:
        hosts = {name: host for name, host in state.items() if name != "success"}
        working = [n for n, h in hosts.items() if any(p["Process Name"] == "OTService" for p in h.get("Processes", []))]
        self.ots = self.ots or working[0]
        held = [h["System info"]["Hostname"] for h in hosts.values() if any(map(_privileged, h.get("Sessions", [])))]
        down = "Processes" in hosts[self.ots] and self.ots not in working
        return round(-sum(0.1 if name.startswith(("User", "Op_H")) else 1.0 for name in held) - 10.0 * down, 1)


def _privileged(session: dict[str, Any]) -> bool:
    return session["Agent"] == "Red" and session["Username"] in ("root", "SYSTEM")


class SleepAgent:
    skill = 0.0

    def act(self, state: State) -> str | None:
        if random.random() >= self.skill:
            return None
        target = random.choice([*state.hosts, *["Op_Server0"] * 6])
        held = [s for s in state.sessions["Red"].values() if s.host == target]
        server = state.hosts["Op_Server0"]
        if target == "Op_Server0" and any(s.username == "root" for s in held) and server.stoppable:
            server.processes = [p for p in server.processes if p.name != "OTService"]
        elif held:
            held[0].username = "root" if target != "User0" else "SYSTEM"
        else:
            state.break_in(target, "ubuntu")
        return target


class B_lineAgent(SleepAgent):  # noqa: N801
    skill = 0.9


class RedMeanderAgent(SleepAgent):
    skill = 0.6


class GreenAgent(SleepAgent): ...


class Controller:
    calculator: ClassVar[type[Any]] = HybridAvailabilityConfidentialityRewardCalculator

    def __init__(self, agents: dict[str, Any]) -> None:
        read = yaml.load(io.StringIO(SCENARIO), Loader=yaml.FullLoader)
        info = SimpleNamespace(allowed_subnets=list(read["Subnets"]))
        self.scenario = SimpleNamespace(hosts=read["Hosts"], subnets=read["Subnets"], get_agent_info=lambda name: info)
        self.red = agents["Red"]()
        self.state = State(self.scenario)
        self.INFO_DICT = {"True": dict.fromkeys(read["Hosts"])}
        self.agent_interfaces = {"Blue": SimpleNamespace(reward_calculator=self.calculator())}
        self.last: Action | None = None
        self.true_states = 0
        self._map()

    def _map(self) -> None:
        self.hostname_ip_map = {host: ip for ip, host in self.state.ip_addresses.items()}
        self.subnet_cidr_map = self.state.subnet_name_to_cidr

    def reset(self) -> Any:
        self.state.reset()
        self._map()
        self.agent_interfaces["Blue"].reward_calculator.ots = None
        return self._filter_obs(self.get_true_state(self.INFO_DICT["True"])).data

    def get_true_state(self, info: dict[str, Any]) -> Observation:
        self.true_states += 1
        return self.state.get_true_state(info)

    def get_agent_state(self, name: str) -> Any:
        return self._filter_obs(self.get_true_state(self.INFO_DICT[name])).data

    def _filter_obs(self, obs: Any, agent_name: str | None = None) -> Any:
        names = self.subnet_cidr_map if agent_name is None else self.scenario.get_agent_info(agent_name).allowed_subnets
        cidrs = [self.subnet_cidr_map[name] for name in names]
        obs.filter_addresses(ips=self.hostname_ip_map.values(), cidrs=cidrs, include_localhost=False)
        return obs

    def step(self, agent: str | None = None, action: Any = None) -> tuple[dict[str, Any], float]:
        self.last = action
        if isinstance(action, Restore):
            host = self.state.hosts[action.hostname]
            for ident in host.sessions.pop("Red", []) if action.hostname != "User0" else []:
                del self.state.sessions["Red"][ident]
            host.restore()
        self.red.act(self.state)
        true = self._filter_obs(self.get_true_state(self.INFO_DICT["True"])).data
        reward = self.agent_interfaces["Blue"].reward_calculator.calculate_reward(true)
        obs = Observation()
        for name, host in self.state.hosts.items():
            if host.events:
                obs.data[name] = {"Processes": [{"Event": event, "Addresses": []} for event in host.events]}
                host.events = []
        return self._filter_obs(obs, "Blue").data, reward - isinstance(action, Restore)


class CybORG:
    def __init__(self, scenario_file: str, environment: str, agents: dict[str, Any]) -> None:
        assert scenario_file.endswith("Scenario2.yaml")
        assert environment == "sim"
        self.environment_controller = Controller(agents)

    def get_agent_state(self, name: str) -> Any:
        return self.environment_controller.get_agent_state(name)

    def get_action_space(self, agent: str) -> dict[str, Any]:
        hosts = self.environment_controller.scenario.hosts
        kinds = BLUE_ACTIONS if agent == "Blue" else [Sleep]
        return {"action": dict.fromkeys(kinds), "session": {0: True}, "agent": {agent: True}, "hostname": set_of(hosts)}


def set_of(names: list[str]) -> dict[str, bool]:
    return dict.fromkeys(names, True)


class TrueTableWrapper:
    def __init__(self, env: CybORG) -> None:
        self.env = env
        self.scanned: list[str] = []

    def step(self, agent: str, action: Any) -> Any:
        seen, reward = self.env.environment_controller.step(agent, action)
        self._update_scanned(seen)
        space = self.env.get_action_space(agent)
        return SimpleNamespace(observation=seen, reward=reward, done=False, action_space=space)

    def _update_scanned(self, seen: dict[str, Any]) -> None:
        self.scanned.append(deepcopy(seen).popitem()[0])

    def get_table(self) -> str:
        return str(self.env.get_agent_state("True"))


class BlueTableWrapper:
    def __init__(self, env: CybORG, output_mode: str) -> None:
        assert output_mode == "vector"
        self.env = TrueTableWrapper(env)
        self.info: dict[str, list[str]] = {}
        self.blue_info: dict[str, list[str]] = {}

    def reset(self, agent: str) -> Any:
        hosts = self.env.env.environment_controller.reset()
        self.blue_info = {name: ["", "", name, "None", "No"] for name in hosts if name != "success"}
        self.info = self.blue_info
        space = self.env.env.get_action_space(agent)
        return SimpleNamespace(observation=self._create_vector(True), action_space=space)

    def step(self, agent: str, action: Any) -> Any:
        result = self.env.step(agent, action)
        result.observation = self.observation_change(result.observation)
        return result

    def observation_change(self, observation: dict[str, Any], baseline: bool = False) -> Any:
        obs = deepcopy(observation)
        success = obs.pop("success")
        self.info = self._process_anomalies(obs)
        return self._create_vector(success)

    def _process_anomalies(self, anomalies: dict[str, Any]) -> dict[str, list[str]]:
        last = self.env.env.environment_controller.last
        if isinstance(last, Restore):
            self.blue_info[last.hostname][-1] = "No"
        info = deepcopy(self.blue_info)
        for name, host in anomalies.items():
            info[name][-2] = host["Processes"][-1]["Event"]
            if info[name][-2] == "Exploit":
                info[name][-1] = self.blue_info[name][-1] = "User"
        return info

    def _create_vector(self, success: Any) -> Any:
        activity = {"None": [0, 0], "Scan": [1, 0], "Exploit": [1, 1]}
        belief = {"No": [0, 0], "Unknown": [1, 0], "User": [0, 1], "Privileged": [1, 1]}
        return np.array([bit for row in self.info.values() for bit in activity[row[3]] + belief[row[4]]])


class EnumActionWrapper:
    def __init__(self, env: BlueTableWrapper) -> None:
        self.env = env
        self.possible_actions: list[Any] = []
        self.action_signature: dict[Any, Any] = {}
        self.rebuilt = 0
        self.get_action_space("Red")

    def get_action_space(self, agent: str) -> int:
        return self.action_space_change(self.env.env.env.get_action_space(agent))

    def action_space_change(self, space: dict[str, Any]) -> int:
        self.rebuilt += 1
        self.possible_actions = []
        for kind in space["action"]:
            if kind not in self.action_signature:
                self.action_signature[kind] = inspect.signature(kind).parameters
            given = {name: next(iter(space[name])) for name in self.action_signature[kind] if name != "hostname"}
            for host in space["hostname"] if "hostname" in self.action_signature[kind] else [None]:
                self.possible_actions.append(kind(**given, **({} if host is None else {"hostname": host})))
        return len(self.possible_actions)

    def reset(self, agent: str) -> Any:
        result = self.env.reset(agent)
        result.action_space = self.action_space_change(result.action_space)
        return result

    def step(self, agent: str, action: int) -> Any:
        result = self.env.step(agent, self.possible_actions[action])
        result.action_space = self.action_space_change(result.action_space)
        return result
