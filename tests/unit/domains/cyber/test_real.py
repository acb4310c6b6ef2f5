"""Against the real CybORG, where `CYBORG_PATH` names a checkout: `CYBORG_PATH=... pytest tests/unit/domains/cyber`.

Both sides cannot draw the same numbers. So the simulator plays first, and what chance decided there is dictated to us:
everything else must then be equal, step for step.
"""

from __future__ import annotations

import copy
import os
import random
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.domains.cyber.playing import action_name

from paceline.domains.cyber.actions import ACTION_HOST, HOSTS
from paceline.domains.cyber.attackers import _TARGETS, Bline, Ints
from paceline.domains.cyber.network import Network
from paceline.domains.cyber.scenario import RedAgent, RuleSet, Scenario
from paceline.domains.cyber.tables import ESCALATE, EXPLOIT, IMPACT, PING, SCAN

pytestmark = [
    pytest.mark.skipif("CYBORG_PATH" not in os.environ, reason="set CYBORG_PATH to a checkout of CybORG"),
    pytest.mark.filterwarnings("ignore"),  # CybORG and the gym that it imports are older than their dependencies
]

EPISODES, STEPS = 6, 100
ACTS = {
    "DiscoverRemoteSystems": PING,
    "DiscoverNetworkServices": SCAN,
    "ExploitRemoteService": EXPLOIT,
    "PrivilegeEscalate": ESCALATE,
    "Impact": IMPACT,
}
EXPLOIT_CLASSES = (
    "FTPDirectoryTraversal",
    "HarakaRCE",
    "SQLInjection",
    "HTTPSRFI",
    "HTTPRFI",
    "EternalBlue",
    "BlueKeep",
    "SSHBruteForce",
)
PINGED = {"User": "User0", "Enterprise": "Enterprise0", "Operational": "Op_Server0"}
GREEN_HOSTS = [*(f"User{i}" for i in range(5)), *(f"Enterprise{i}" for i in range(3))]
ALWAYS, NEVER = 0, 2**32 - 1


def share(nth: int, of: int) -> int:
    """32 random bits that select item `nth` of `of` items."""
    return int((nth + 0.5) / of * 2**32)


class Told(Network):
    """A game whose random numbers are set by the test."""

    words = (0, 0, 0)

    def _noise(self) -> NDArray[np.uint64]:
        return np.array([self.words[: len(self._counters)]], np.uint64)


class Real:
    """A game of the simulator."""

    def __init__(self, red_agent: str, green: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        checkout = Path(os.environ["CYBORG_PATH"]).expanduser()
        sys.path.insert(0, str(checkout / "CybORG" if (checkout / "CybORG" / "CybORG").is_dir() else checkout))
        package, scripts = import_module("CybORG"), import_module("CybORG.Agents")
        wrappers, sessions = import_module("CybORG.Agents.Wrappers"), import_module("CybORG.Simulator.Session")
        self.rules: RuleSet = "head" if hasattr(sessions.RedAbstractSession, "clearports") else "leaderboard-2022"
        agents = {"Red": scripts.B_lineAgent if red_agent == "bline" else scripts.RedMeanderAgent}
        if green:
            agents["Green"] = scripts.GreenAgent
        scenario = Path(str(package.__file__)).parent / "Shared" / "Scenarios" / "Scenario2.yaml"
        self.cyborg = package.CybORG(str(scenario), "sim", agents=agents)
        self.env = wrappers.EnumActionWrapper(wrappers.BlueTableWrapper(self.cyborg, output_mode="vector"))
        self.alerts: list[bool] = []

        def draw() -> float:
            drawn = random.random()
            self.alerts.append(drawn < 0.95)
            return drawn

        monkeypatch.setattr("CybORG.Shared.Actions.ConcreteActions.ExploitAction.random", draw)

    def reset(self) -> None:
        self.env.reset("Blue")

    def step(self, action: int) -> tuple[list[int], float]:
        self.alerts.clear()
        result = self.env.step("Blue", action)
        return np.asarray(result.observation).tolist(), result.reward

    def act(self) -> tuple[int, str]:
        """The attacker's last act and its host."""
        action, controller = self.cyborg.get_last_action("Red"), self.cyborg.environment_controller
        act = ACTS[type(action).__name__]
        if act in (ESCALATE, IMPACT):
            return act, action.hostname
        if act == PING:
            return act, next(PINGED[net] for net, cidr in controller.subnet_cidr_map.items() if cidr == action.subnet)
        return act, next(host for host, ip in controller.hostname_ip_map.items() if ip == action.ip_address)

    def exploit(self) -> int | None:
        """The exploit of its last act."""
        made = getattr(self.cyborg.get_last_action("Red"), "sub_action", None)
        return None if made is None else EXPLOIT_CLASSES.index(type(made).__name__)

    def scanned_by_users(self) -> str | None:
        return getattr(self.cyborg.get_last_action("Green"), "hostname", None)

    def true_state(self) -> list[int]:
        levels = dict.fromkeys(HOSTS, 0)
        for session in self.cyborg.environment_controller.state.sessions["Red"].values():
            level = 2 if session.username in ("root", "SYSTEM") else 1
            levels[session.host] = max(levels[session.host], level)
        return list(levels.values())


def dictate(game: Told, real: Real) -> None:
    """Set the random numbers of the next step so that it equals the simulator's last one."""
    act, host = real.act()
    place = HOSTS.index(host)
    attacker = game._attacker
    if isinstance(attacker, Bline) and game.steps[0] == 1:
        attacker._targets[0] = _TARGETS[int(host[-1]) - 1]

    def chosen(noise: int) -> tuple[int, int]:
        acts, hosts = copy.deepcopy(attacker).choose(np.array([noise], np.uint64))
        return int(acts[0]), int(hosts[0])

    targets = [share(k, 64) for k in range(64)]
    target = next((noise for noise in targets if chosen(noise) == (act, place)), None)
    assert target is not None, f"the simulator's attacker does {act} to {host}, ours {chosen(0)}"
    alert = ALWAYS if not real.alerts or real.alerts[0] else NEVER
    favourite, other = ALWAYS, 0
    if (exploit := real.exploit()) is not None:
        options = [bit for bit in range(8) if game._remembered[0, place] >> bit & 1]
        if exploit != options[0]:
            favourite, other = NEVER, share(options[1:].index(exploit), len(options) - 1)
    users = real.scanned_by_users()
    green = NEVER << 32 if users is None else share(GREEN_HOSTS.index(users), 8)
    game.words = (target << 32 | alert, favourite << 32 | other, green)


@pytest.mark.parametrize("green", [False, True])
@pytest.mark.parametrize("red_agent", ["bline", "meander"])
def test_it_equals_the_simulator(red_agent: RedAgent, green: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defenders sleep more and more often, and else take random actions, on all hosts or on a few in turn."""
    random.seed(3)
    rng = np.random.default_rng(3)
    real = Real(red_agent, green, monkeypatch)
    game = Told(1, Scenario(red_agent=red_agent, green=green, rules=real.rules, max_steps=STEPS))
    few = np.isin(ACTION_HOST, [HOSTS.index(h) for h in ("Enterprise0", "Enterprise2", "Op_Server0", "User1", "User3")])
    for episode in range(EPISODES):
        real.reset()
        game.begin(np.zeros(1, np.intp))
        choices: Ints = np.flatnonzero(few) if episode % 2 else np.arange(len(ACTION_HOST))
        for step in range(STEPS):
            action = 0 if rng.random() < episode / EPISODES else int(rng.choice(choices))
            obs, reward = real.step(action)
            dictate(game, real)
            rewards, _ = game.step(np.array([action]))
            where = f"episode {episode}, step {step}, {action_name(action)}"
            assert game.observe()[0].tolist() == obs, where
            assert rewards[0] == pytest.approx(reward, abs=1e-9), where
            assert game.true_state()[0].tolist() == real.true_state(), where
