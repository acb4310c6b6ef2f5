"""`CybORGEnv`: CybORG's Scenario2 as a Gymnasium env, from the defender's side."""

from __future__ import annotations

import logging
import multiprocessing
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTION_HOST, ACTION_KIND, ACTIONS, HOSTS, KINDS
from paceline.domains.cyber.env import EXTRAS
from paceline.domains.cyber.network import OBS_SIZE
from paceline.errors import ConfigError, check_range, nearest
from paceline.integrations.cyborg.chance import Chance
from paceline.integrations.cyborg.fast import ACCELERATIONS, build_fast
from paceline.integrations.cyborg.install import RED_AGENTS, Simulator, simulator

_log = logging.getLogger(__name__)

BLUE, RED = "Blue", "Red"
HOST_INDEX = {name: index for index, name in enumerate(HOSTS)}
PRIVILEGED = frozenset(("root", "SYSTEM"))
Q1 = (
    "CybORG's quirk Q1: after a Restore of Op_Server0, Impact costs nothing until the next reset. Episodes therefore "
    "end at max_steps=%d. Without resets the rewards would rise even if the policy learns nothing."
)
_logged = False


class CybORGEnv(gym.Env[NDArray[np.float32], np.int64]):
    """A game of the CybORG installation of the user: observations of 52 bits, 145 actions, `max_steps` per episode.

    The info of an episode's last step has the `true_state`.

    An episode depends only on the seed of its reset, and equals that of the unmodified simulator after
    `random.seed(seed)`. Envs in one process are independent; those in different threads are stepped one at a time.

    Args:
        red_agent: The attacker: `bline`, `meander` or `sleep`.
        max_steps: Steps after which the episode is truncated. The game itself never ends.
        green: Whether benign users scan hosts now and then. Official evaluations do not use it.
        fast: Whether to skip work of the simulator that does not affect the game; results are bit-identical. Or the
            names of the accelerations to use, separated by commas: reward, actions, table, addresses, reset.
        render_mode: With `ansi`, `render` returns the table of the true state.

    Raises:
        MissingExtra: CybORG is not installed.
        ConfigError: An argument has an invalid value, or the simulator's actions are not those of Scenario2.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium declares it so)
    extras = EXTRAS

    def __init__(
        self,
        *,
        red_agent: str = "bline",
        max_steps: int = 100,
        green: bool = False,
        fast: bool | str = True,
        render_mode: str | None = None,
    ) -> None:
        if red_agent not in RED_AGENTS:
            raise ConfigError(f"red_agent={red_agent!r}: unknown. {nearest(str(red_agent), RED_AGENTS)}")
        check_range("max_steps", max_steps, "The game never ends by itself: 30, 50 and 100 are usual.", at_least=1)
        self.observation_space = spaces.Box(0.0, 1.0, (OBS_SIZE,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self.render_mode = render_mode
        self.max_steps = max_steps
        self.simulator: Simulator = simulator()
        self._chance = Chance()
        with self._chance:
            self._parts = build_fast(red_agent, green=green, names=_names(fast))
            self._parts.enumerated.get_action_space(BLUE)
        _require_actions(self._parts.enumerated.possible_actions)
        self._play = self._parts.enumerated.step
        self._state = self._parts.controller.state
        self._taken = max_steps  # as if an episode had ended, so that `step` requires a reset
        _log_once(self.simulator, max_steps)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode. A seed determines it; without one, the random stream continues."""
        super().reset(seed=seed)
        del options
        with self._chance:
            if seed is not None:
                self._chance.generator.seed(seed)
            seen = self._parts.enumerated.reset(BLUE).observation
        self._taken = 0
        return np.asarray(seen, np.float32), {}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take the defender's action; then the attacker acts.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
        """
        if self._taken >= self.max_steps:
            raise ResetNeeded(
                f"CybORGEnv: step after the end of an episode ({self._taken} of max_steps={self.max_steps}). Reset it."
            )
        with self._chance:
            result = self._play(BLUE, int(action))
        self._taken += 1
        seen = np.asarray(result.observation, np.float32)
        truncated = self._taken >= self.max_steps
        info = {"true_state": self.true_state()} if truncated else {}
        return seen, float(result.reward), bool(result.done), truncated, info

    def true_state(self) -> NDArray[np.int8]:
        """[13] the attacker's level on each host: 0 none, 1 user, 2 privileged."""
        held = bytearray(len(HOSTS))
        for session in self._state.sessions[RED].values():
            level = 2 if session.username in PRIVILEGED else 1
            host = HOST_INDEX[session.host]
            if held[host] < level:
                held[host] = level
        return np.frombuffer(held, np.int8)

    def render(self) -> str | None:
        """CybORG's table of the true state, with `render_mode="ansi"`; else None."""
        return str(self._parts.true_table.get_table()) if self.render_mode == "ansi" else None


def _names(fast: bool | str) -> list[str]:
    if isinstance(fast, bool):
        return list(ACCELERATIONS) if fast else []
    return [name.strip() for name in str(fast).split(",") if name.strip()]


def _require_actions(made: list[Any]) -> None:
    """Raise ConfigError if the actions have other numbers than `paceline.domains.cyber.actions` says."""
    if len(made) != ACTIONS:
        raise ConfigError(
            f"CybORG: Scenario2 must give the defender {ACTIONS} actions (got {len(made)}). "
            "Use a checkout's Scenario2 as published."
        )
    for number, action in enumerate(made):
        kind, host = KINDS[ACTION_KIND[number]], int(ACTION_HOST[number])
        # startswith, because CybORG's name of one decoy is longer than the one in KINDS.
        fits = type(action).__name__.startswith(kind) and (host < 0 or action.hostname == HOSTS[host])
        if not fits:
            wanted = kind if host < 0 else f"{kind} {HOSTS[host]}"
            raise ConfigError(
                f"CybORG: action {number} must be {wanted} (got {action}). Use a checkout's Scenario2 as published."
            )


def _log_once(found: Simulator, max_steps: int) -> None:
    """Log the CybORG version and quirk Q1, once and not in workers."""
    global _logged
    if _logged or multiprocessing.parent_process() is not None:
        return
    _logged = True
    _log.warning("%s. " + Q1, found, max_steps)
