"""`NetworkDefence`: one game of network defence as a Gymnasium env, and the text of a game. See `vector` for many."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTIONS, HOSTS
from paceline.domains.cyber.network import OBS_SIZE, Network
from paceline.domains.cyber.scenario import RedAgent, RuleSet, Scenario
from paceline.envs.extras import Extra
from paceline.errors import ConfigError

_ROW = np.zeros(1, np.intp)
_LEVELS = ("", "user", "privileged")
_ACTIVITY = {(0, 0): "", (1, 0): "scan", (1, 1): "exploit"}
_BELIEF = {(0, 0): "", (1, 0): "unknown", (0, 1): "user", (1, 1): "privileged"}

EXTRAS = {"true_state": Extra(shape=(len(HOSTS),), dtype="int8", read="true_state")}


def check_render_mode(render_mode: str | None) -> None:
    """Raise ConfigError if the render mode is not supported."""
    if render_mode not in (None, "ansi"):
        raise ConfigError(f"render_mode={render_mode!r}: must be 'ansi', or None for no rendering.")


class NetworkDefence(gym.Env[NDArray[np.float32], np.int64]):
    """Defend 13 hosts against a scripted attacker.

    The observation has 52 bits, there are 145 actions (see `actions`), and rewards are negative costs. The info of an
    episode's last step has the `true_state`.

    Args:
        red_agent: The attacker: `bline`, `meander` or `sleep`.
        green: Whether benign users scan hosts now and then.
        rules: `leaderboard-2022` or `head`. See `Scenario`.
        q1: Whether the first Restore of Op_Server0 makes OTService unstoppable for the rest of the episode.
        max_steps: Steps after which every episode is truncated.
        render_mode: `ansi` for text.

    Raises:
        ConfigError: An argument has an invalid value.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own attribute)
    extras = EXTRAS

    def __init__(
        self,
        *,
        red_agent: RedAgent = "bline",
        green: bool = False,
        rules: RuleSet = "leaderboard-2022",
        q1: bool = True,
        max_steps: int = 100,
        render_mode: str | None = None,
    ) -> None:
        self.scenario = Scenario(red_agent=red_agent, green=green, rules=rules, q1=q1, max_steps=max_steps)
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (OBS_SIZE,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self._network = Network(1, self.scenario)
        self._seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode. A seed starts a new random stream; without one, the current stream continues."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._network.seed(_ROW, np.array([seed % 2**64], np.uint64))
        elif not self._seeded:
            self._network.seed(_ROW, self.np_random.integers(0, 2**64, 1, np.uint64))
        self._seeded = True
        self._network.begin(_ROW)
        return self._network.observe()[0], {}

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one of the 145 actions; then the attacker acts.

        Raises:
            EnvError: The action is not between 0 and 144.
            ResetNeeded: The env was never reset.
        """
        if not self._seeded:
            raise gym.error.ResetNeeded("NetworkDefence: step before the first reset. Call reset.")
        reward, truncated = self._network.step(np.array([action], np.int64))
        info = {"true_state": self.true_state()} if truncated[0] else {}
        return self._network.observe()[0], float(reward[0]), False, bool(truncated[0]), info

    def true_state(self) -> NDArray[np.int8]:
        """[13] the attacker's level on every host: 0 none, 1 user, 2 privileged.

        User0 is always 2, because the attacker's foothold there is permanent. Exclude it when measuring whether the
        defender's fixes hit compromised hosts.
        """
        levels: NDArray[np.int8] = self._network.true_state()[0]
        return levels

    def render(self) -> str | None:
        """A table of the hosts with the true state and the defender's belief; None without `render_mode="ansi"`."""
        return table(self._network, 0) if self.render_mode == "ansi" else None


def table(network: Network, row: int) -> str:
    """A table of the hosts of one game: true state, activity of the last step and the defender's belief."""
    levels = network.true_state()[row]
    bits = network.observe()[row].astype(int).reshape(-1, 4).tolist()
    lines = [f"step {network.steps[row]}{', OTService is down' if network.ot_stopped()[row] else ''}"]
    lines.append(f"{'host':<12} {'truth':<11} {'activity':<9} belief")
    for host, level, (a, b, c, d) in zip(HOSTS, levels, bits, strict=True):
        lines.append(f"{host:<12} {_LEVELS[level]:<11} {_ACTIVITY[a, b]:<9} {_BELIEF[c, d]}".rstrip())
    return "\n".join(lines)
