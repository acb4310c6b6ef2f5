"""`NetworkDefenceVector`: many games of network defence as a Gymnasium vector env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTIONS
from paceline.domains.cyber.env import EXTRAS, check_render_mode, table
from paceline.domains.cyber.network import OBS_SIZE, Network
from paceline.domains.cyber.scenario import RedAgent, RuleSet, Scenario
from paceline.errors import ConfigError, EnvError, check_range, nearest
from paceline.vector.requests import masked, seeds_of

Step = tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class NetworkDefenceVector(VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
    """`num_envs` games, each the same as a `NetworkDefence` with the same seed.

    Args:
        num_envs: Number of games.
        red_agent: See `NetworkDefence`.
        green: See `NetworkDefence`.
        rules: See `NetworkDefence`.
        q1: See `NetworkDefence`.
        max_steps: See `NetworkDefence`.
        autoreset_mode: Gymnasium's autoreset mode. When an episode ends, the next one begins in the same step
            (`SameStep`; infos have the last observation and `true_state`), in the next step (`NextStep`), or when the
            caller resets the env (`Disabled`).
        render_mode: `ansi` for text.

    Raises:
        ConfigError: An argument has an invalid value.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's own attribute)
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "native_from": 2,  # a step of ten games takes little longer than one of a single game
        "same_as_single_envs": True,
    }
    extras = EXTRAS

    def __init__(
        self,
        num_envs: int = 1,
        *,
        red_agent: RedAgent = "bline",
        green: bool = False,
        rules: RuleSet = "leaderboard-2022",
        q1: bool = True,
        max_steps: int = 100,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        check_range("num_envs", num_envs, "Each is a game of its own.", at_least=1)
        self.scenario = Scenario(red_agent=red_agent, green=green, rules=rules, q1=q1, max_steps=max_steps)
        check_render_mode(render_mode)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            hint = nearest(str(autoreset_mode), [mode.value for mode in AutoresetMode])
            raise ConfigError(f"autoreset_mode={autoreset_mode!r}: unknown. {hint}") from error
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = spaces.Box(0.0, 1.0, (OBS_SIZE,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = spaces.Discrete(ACTIONS)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._network = Network(num_envs, self.scenario)
        self._seeded = np.zeros(num_envs, np.bool_)
        self._ended = np.zeros(num_envs, np.bool_)  # by the last step, and not yet reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset every env, or those selected by `options["reset_mask"]`.

        Args:
            seed: Seed of the first env (env i gets `seed + i`), or one per env. An env with None continues its current
                random stream.
            options: `reset_mask`: [num_envs] bools.

        Raises:
            TypeError: The mask is not a bool array.
            ValueError: There is not one seed per env; or the mask has another shape, or selects no env.
        """
        seeds = seeds_of(seed, self.num_envs)
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        rows = np.array(masked(options, self.num_envs)[0], np.intp)
        given = {row: int(value) % 2**64 for row in rows.tolist() if (value := seeds[row]) is not None}
        self._network.seed(np.array(list(given), np.intp), np.array(list(given.values()), np.uint64))
        self._seeded[list(given)] = True
        fresh = rows[~self._seeded[rows]]
        self._network.seed(fresh, self.np_random.integers(0, 2**64, len(fresh), np.uint64))
        self._seeded[fresh] = True
        self._network.begin(rows)
        self._ended[rows] = False
        return self._network.observe(), {}

    def step(self, actions: NDArray[np.int64]) -> Step:
        """One step of every env.

        Raises:
            EnvError: An action is not between 0 and 144.
            ResetNeeded: An env was never reset, or with autoreset disabled, its episode is over.
        """
        if not self._seeded.all():
            raise gym.error.ResetNeeded("NetworkDefence: step before the first reset. Call reset.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise gym.error.ResetNeeded(
                f"NetworkDefence: the episodes of envs {np.flatnonzero(self._ended).tolist()} are over. Call "
                "reset(options={'reset_mask': ...})."
            )
        actions = np.ascontiguousarray(actions, np.int64)
        if actions.shape != (self.num_envs,):
            raise EnvError(f"actions: must be one per env (shape {actions.shape}, {self.num_envs} envs).")
        reward, truncated = self._network.step(actions)
        if self._ended.any():  # NEXT_STEP: these envs only reset; the step's effect on them is discarded
            self._network.begin(np.flatnonzero(self._ended))
            reward[self._ended] = 0.0
            truncated &= ~self._ended
        obs, infos = self._network.observe(), {}
        if truncated.any():
            last = {"true_state": self.true_state() * truncated[:, None], "_true_state": truncated.copy()}
            infos = last
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                infos = self._final(obs, truncated, last)
                rows = np.flatnonzero(truncated)
                self._network.begin(rows)
                obs[rows] = 0.0  # the first observation of an episode
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended = truncated.copy()
        return obs, reward, np.zeros(self.num_envs, np.bool_), truncated, infos

    def true_state(self) -> NDArray[np.int8]:
        """[num_envs, 13] the attacker's level on every host, including its foothold on User0. See `NetworkDefence`."""
        return self._network.true_state()

    def render(self) -> tuple[str, ...] | None:
        """A table of the hosts of every env; None without `render_mode="ansi"`."""
        if self.render_mode != "ansi":
            return None
        return tuple(table(self._network, row) for row in range(self.num_envs))

    def _final(self, obs: NDArray[np.float32], ended: NDArray[np.bool_], last: dict[str, Any]) -> dict[str, Any]:
        """Last observations and infos in the layout of Gymnasium's vector envs."""
        finals = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(ended):
            finals[row] = obs[row].copy()
        return {"final_obs": finals, "_final_obs": ended.copy(), "final_info": last, "_final_info": ended.copy()}
