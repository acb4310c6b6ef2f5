"""PettingZoo in both directions: Paceline's games as AEC envs, and two-player AEC envs as a `Game` of Paceline.

    aec_env("paceline/Ludo-v0")                 a pettingzoo.AECEnv with one board
    PettingZooGame(connect_four_v3.env, n=8)    n AEC envs, stepped one after another, that any `Player` can play

Needs the extra `pettingzoo`, which is imported only when an AEC env is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.domains.games import game_of
from paceline.envs.game import Game, Rows, illegal
from paceline.errors import ConfigError, EnvError, MissingExtra, check_range, nearest
from paceline.spec import MASK_KEY

_ROW = np.zeros(1, np.intp)
_AGENTS = ("player_0", "player_1")


def aec_env(env_id: str, *, render_mode: str | None = None) -> Any:
    """Make a PettingZoo AEC env for two agents from one of Paceline's games.

    Observations are dicts with the keys `observation` and `action_mask` (legal actions); the mask is 0 for the agent
    that is not to move. An illegal action raises IllegalMove and changes nothing.

    Args:
        env_id: Gymnasium id, such as `paceline/ConnectFour-v0`.
        render_mode: `ansi` for text.

    Raises:
        ConfigError: The id is not that of a game of Paceline.
        MissingExtra: PettingZoo is not installed.
    """
    engine = game_of(env_id)
    if engine is None:
        raise ConfigError(f"env {env_id!r}: not a Paceline game. {nearest(env_id, filter(game_of, gym.registry))}")
    return _aec_class()(engine(1), render_mode)


@cache
def _aec_class() -> Callable[[Game, str | None], Any]:
    try:
        from pettingzoo import AECEnv
    except ImportError as error:
        raise MissingExtra("a PettingZoo env", "pettingzoo") from error

    class GameAEC(AECEnv):  # type: ignore[misc]
        """One board for two agents, with the interface of PettingZoo's AECEnv."""

        def __init__(self, game: Game, render_mode: str | None) -> None:
            super().__init__()
            self.metadata = {"name": f"{game.name}_v0", "render_modes": ["ansi"], "is_parallelizable": False}
            self.render_mode = render_mode
            self.possible_agents = list(_AGENTS)
            self.agents: list[str] = []
            self.game = game
            self._draw = np.random.default_rng()
            mask = spaces.Box(0, 1, (game.actions,), np.int8)
            seen = spaces.Box(0.0, 1.0, (game.obs_size,), np.float32)
            # One space object per agent, because each is seeded separately.
            self._seen = {a: spaces.Dict({"observation": seen, MASK_KEY: mask}) for a in _AGENTS}
            self._actions = {a: spaces.Discrete(game.actions) for a in _AGENTS}

        def observation_space(self, agent: str) -> spaces.Dict:
            return self._seen[agent]

        def action_space(self, agent: str) -> spaces.Discrete:
            return self._actions[agent]

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            del options
            if seed is not None:
                self._draw = np.random.default_rng(seed)
            self.game.reset(_ROW, self._draw.integers(0, 2**64, 1, np.uint64))
            self.agents = list(_AGENTS)
            self.rewards = dict.fromkeys(_AGENTS, 0.0)
            self._cumulative_rewards = dict.fromkeys(_AGENTS, 0.0)
            self.terminations = dict.fromkeys(_AGENTS, False)
            self.truncations = dict.fromkeys(_AGENTS, False)
            self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in _AGENTS}
            self.agent_selection = _AGENTS[self.game.mover[0]]

        def step(self, action: int | None) -> None:
            agent = self.agent_selection
            if self.terminations[agent]:
                self._was_dead_step(action)
                return
            self.game.play(_ROW, np.array([action], np.int64))
            self._cumulative_rewards[agent] = 0.0
            self._clear_rewards()
            if self.game.over[0]:
                winner = int(self.game.winner[0])
                if winner >= 0:
                    self.rewards = {_AGENTS[winner]: 1.0, _AGENTS[1 - winner]: -1.0}
                self.terminations = dict.fromkeys(_AGENTS, True)
                self.agent_selection = _AGENTS[1 - _AGENTS.index(agent)]
            else:
                self.agent_selection = _AGENTS[self.game.mover[0]]
            self._accumulate_rewards()

        def observe(self, agent: str) -> dict[str, NDArray[Any]]:
            seat = _AGENTS.index(agent)
            seen = self.game.observe(_ROW, np.array([seat], np.int8))[0]
            return {"observation": seen, MASK_KEY: self.game.legal(_ROW)[0] * np.int8(self.game.mover[0] == seat)}

        def render(self) -> str | None:
            return self.game.text(0) if self.render_mode == "ansi" else None

        def close(self) -> None:
            """Nothing to close."""

    return GameAEC


class PettingZooGame:
    """n AEC envs of a two-player game as a `Game`, which any `Player` can play. Slow: steps one env after another.

    A truncated game counts as over. The agent with the higher total reward wins. Restoring `state` does not restore a
    board, because the rest of its state is inside the env.

    Args:
        make: Makes a new env at each call. It must have two agents with equal Discrete action spaces, and an action
            mask in observations or infos.
        n: Number of boards.

    Raises:
        ConfigError: The env does not meet these conditions.
    """

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        check_range("n", n, "Try 1.", at_least=1)
        self._envs = [make() for _ in range(n)]
        self.n = n
        first = self._envs[0]
        self.name = str(first.metadata.get("name", type(first).__name__))
        self._agents = list(first.possible_agents)
        self.actions = self._count_actions(first)
        first.reset(seed=0)
        self.obs_size = int(np.size(_observation(first, first.agent_selection)))
        self.mover = np.zeros(n, np.int8)
        self.over = np.ones(n, np.bool_)
        self.winner = np.full(n, -1, np.int8)
        self._mask = np.zeros((n, self.actions), np.bool_)
        self._score = np.zeros((n, 2))
        self.state: dict[str, NDArray[Any]] = {
            "mover": self.mover,
            "over": self.over,
            "winner": self.winner,
            "mask": self._mask,
            "score": self._score,
        }
        self._read_mask(0)  # raises ConfigError if there is no action mask

    def reset(self, rows: Rows, seeds: NDArray[np.uint64]) -> None:
        """Begin new games. Each env is seeded with the upper 31 bits of its seed."""
        for row, seed in zip(rows.tolist(), seeds.tolist(), strict=True):
            self._envs[row].reset(seed=seed >> 33)
            self._score[row] = 0
            self._look(row)

    def play(self, rows: Rows, actions: NDArray[np.int64]) -> None:
        """Step the envs of these boards, one after another. See `Game.play`.

        Raises:
            EnvError: An env raised. The boards before it have already been stepped.
        """
        moves = list(zip(rows.tolist(), actions.tolist(), strict=True))
        for row, action in moves:
            if not 0 <= action < self.actions or not self._mask[row, action]:
                raise illegal(self, row, action)
        for row, action in moves:
            env = self._envs[row]
            try:
                env.step(action)
            except Exception as error:
                raise EnvError(
                    f"{self.name}, board {row}: raised in step with action {action}: {type(error).__name__}: {error}. "
                    "Its action mask allows this action. Check the env with pettingzoo.test.api_test."
                ) from error
            self._score[row] += [env.rewards.get(agent, 0.0) for agent in self._agents]
            self._look(row)

    def observe(self, rows: Rows, seats: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """Observations of the envs, flattened. See `Game.observe`."""
        seats = self.mover[rows] if seats is None else seats
        seen = np.empty((len(rows), self.obs_size), np.float32)
        for out, row, seat in zip(seen, rows.tolist(), seats.tolist(), strict=True):
            out[:] = np.ravel(_observation(self._envs[row], self._agents[seat]))
        return seen

    def legal(self, rows: Rows) -> NDArray[np.bool_]:
        """[k, actions] legal actions of the players to move, as a new array; all False for a finished game."""
        return self._mask[rows]

    def text(self, row: int) -> str:
        """The env's rendering, if it was made with `render_mode="ansi"`; else the agent to move."""
        env = self._envs[row]
        drawn = env.render() if getattr(env, "render_mode", None) == "ansi" else None
        state = "over" if self.over[row] else f"{self._agents[self.mover[row]]} to move"
        return str(drawn) if drawn else f"{self.name}, {state}"

    def move_name(self, row: int, action: int) -> str:
        """The name of an action, such as `action 3`: PettingZoo has no other names."""
        del row
        return f"action {action}"

    def close(self) -> None:
        """Close the envs."""
        for env in self._envs:
            env.close()

    def _count_actions(self, env: Any) -> int:
        if len(self._agents) != 2:
            raise ConfigError(f"{self.name}: must have two agents (got {len(self._agents)}: {self._agents}).")
        sides = [env.action_space(agent) for agent in self._agents]
        if not all(isinstance(side, spaces.Discrete) and side.start == 0 for side in sides) or sides[0].n != sides[1].n:
            raise ConfigError(
                f"{self.name}: agents must have equal Discrete action spaces that start at 0 "
                f"(got {sides[0]} and {sides[1]})."
            )
        return int(sides[0].n)

    def _look(self, row: int) -> None:
        """Copy the agent to move and its legal actions from the env, or the result of a finished game."""
        env = self._envs[row]
        self.over[row] = any(env.terminations.values()) or any(env.truncations.values())
        if self.over[row]:
            first, second = self._score[row]
            self.winner[row] = -1 if first == second else int(second > first)
            self._mask[row] = False
            return
        agent = env.agent_selection
        self.mover[row] = self._agents.index(agent)
        self._mask[row] = self._read_mask(row)
        if not self._mask[row].any():
            raise EnvError(
                f"{self.name}, board {row}: {agent} is to move, but {MASK_KEY} has no legal action. "
                "Let the env end the game (terminations), or allow an action that does nothing."
            )

    def _read_mask(self, row: int) -> NDArray[np.bool_]:
        env = self._envs[row]
        agent = env.agent_selection
        seen = env.observe(agent)
        mask = (seen if isinstance(seen, dict) and MASK_KEY in seen else env.infos[agent]).get(MASK_KEY)
        if mask is None or np.size(mask) != self.actions:
            raise ConfigError(
                f"{self.name}: needs an {MASK_KEY} with {self.actions} entries in its observations or infos "
                f"(got {None if mask is None else np.shape(mask)})."
            )
        return np.asarray(mask, np.bool_)


def _observation(env: Any, agent: Any) -> Any:
    """An agent's observation without the action mask."""
    seen = env.observe(agent)
    return seen["observation"] if isinstance(seen, dict) else seen
