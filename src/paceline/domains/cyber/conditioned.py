"""Network defence envs whose observation includes the workflow: 52 bits of the game and a one-hot code of 25 numbers.

With several workflows, each episode draws one with the random numbers of the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.network import OBS_SIZE, Network
from paceline.domains.cyber.vector import NetworkDefenceVector, Step
from paceline.domains.cyber.workflow import ORDER_SIZE, one_hot, read_workflow
from paceline.errors import ConfigError
from paceline.vector.requests import masked

Workflows = str | Sequence[str]
"""One workflow, as in `op_server,enterprise,op_host,defender,user`, or a list of such texts."""


class _WorkflowCodes:
    """Draws the workflow of each episode of n games and appends its code to observations."""

    def __init__(self, n: int, workflow: Workflows) -> None:
        texts = [workflow] if isinstance(workflow, str) else list(workflow)
        if not texts:
            raise ConfigError("workflow: needs at least one workflow (got none).")
        self._all = one_hot(np.array([read_workflow(text) for text in texts]))  # [k, 25]
        self.space = spaces.Box(0.0, 1.0, (OBS_SIZE + ORDER_SIZE,), np.float32)
        self.now = np.tile(self._all[0], (n, 1))
        """[n, 25] code of the current episodes."""

    def begin(self, rows: NDArray[np.intp], network: Network) -> None:
        """Draw the workflows of new episodes in these games."""
        if len(self._all) > 1:
            drawn = network.draw(rows) % np.uint64(len(self._all))
            self.now[rows] = self._all[drawn.astype(np.intp)]

    def added(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, 77] the games' observations [n, 52] followed by the codes."""
        return np.concatenate([obs, self.now], axis=1)


class WorkflowDefence(NetworkDefence):
    """`NetworkDefence` with the workflow in the observation: 5 x 5 one-hot, the host type at each place.

    Args:
        workflow: One, or several to draw from.
        **game: As for `NetworkDefence`.
    """

    def __init__(self, *, workflow: Workflows, **game: Any) -> None:
        super().__init__(**game)
        self._codes = _WorkflowCodes(1, workflow)
        self.observation_space = self._codes.space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode, and draw its workflow."""
        obs, info = super().reset(seed=seed, options=options)
        self._codes.begin(np.zeros(1, np.intp), self._network)
        return self._codes.added(obs[None])[0], info

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step the game; see `NetworkDefence.step`."""
        obs, reward, terminated, truncated, info = super().step(action)
        return self._codes.added(obs[None])[0], reward, terminated, truncated, info


class WorkflowDefenceVector(NetworkDefenceVector):
    """`num_envs` games, each the same as a `WorkflowDefence` with the same seed.

    Args:
        num_envs: Number of games.
        workflow: One, or several to draw from.
        **game: As for `NetworkDefenceVector`.
    """

    def __init__(self, num_envs: int = 1, *, workflow: Workflows, **game: Any) -> None:
        super().__init__(num_envs, **game)
        self._codes = _WorkflowCodes(num_envs, workflow)
        self.single_observation_space = self._codes.space
        self.observation_space = batch_space(self._codes.space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin episodes, and draw their workflows."""
        obs, infos = super().reset(seed=seed, options=options)
        self._codes.begin(np.array(masked(options, self.num_envs)[0]), self._network)
        return self._codes.added(obs), infos

    def step(self, actions: NDArray[np.int64]) -> Step:
        """One step of every env."""
        begun = np.flatnonzero(self._ended)  # NEXT_STEP: this step begins them
        obs, reward, terminated, truncated, infos = super().step(actions)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and truncated.any():
            begun = np.flatnonzero(truncated)
            for row in begun:
                infos["final_obs"][row] = np.concatenate([infos["final_obs"][row], self._codes.now[row]])
        if len(begun):
            self._codes.begin(begun, self._network)
        return self._codes.added(obs), reward, terminated, truncated, infos
