"""`GameEnv`: a two-player game against a fixed opponent as a single-agent Gymnasium env.

    reset ---> the opponent moves until it is the learner's turn ---> observation, action_mask
    step ---> the learner's move, then the opponent's, until it is the learner's turn again or the game is over

A step lasts from one move of the learner to its next; the opponent's moves and dice in between are part of the env.
The reward at the end is 1 for a win, -1 for a loss and 0 for a draw, whichever player made the last move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.domains.games import GAMES
from paceline.domains.games.players import PLAYERS, player, players_of
from paceline.envs.game import Game, Player
from paceline.errors import ConfigError, nearest
from paceline.ops.random_bits import draws
from paceline.spec import MASK_KEY

_ROW = np.zeros(1, np.intp)


class GameEnv(gym.Env[NDArray[np.float32], np.int64]):
    """One board with a learner and an opponent. `info` has the legal actions and the learner's seat.

    Args:
        game: A name in `GAMES`, or a function that makes a `Game` with the given number of boards. Self-play reads it
            from the attribute `engine` to play on many boards at once.
        opponent: A name in `PLAYERS` that can play the game.
        render_mode: `ansi` for text.

    Raises:
        ConfigError: The game or opponent is unknown.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 2}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(
        self, game: str | Callable[[int], Game], *, opponent: str = "random", render_mode: str | None = None
    ) -> None:
        if isinstance(game, str) and game not in GAMES:
            raise ConfigError(f"game {game!r}: unknown. {nearest(game, GAMES)}")
        if render_mode not in (None, "ansi"):
            raise ConfigError(f"render_mode={render_mode!r}: must be 'ansi', or None for no rendering.")
        self.engine: Callable[[int], Game] = GAMES[game] if isinstance(game, str) else game
        self.game = self.engine(1)
        self.render_mode = render_mode
        low, high = (0.0, 1.0) if isinstance(game, str) else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, (self.game.obs_size,), np.float32)
        self.action_space = spaces.Discrete(self.game.actions)
        self.opponent = opponent
        self._opponent = player(opponent, self.game.name)
        self._key = np.zeros(1, np.uint64)  # of the opponent's noise
        self._choices = np.zeros(1, np.int64)
        self._seat = np.zeros(1, np.int8)

    @property
    def scripted_players(self) -> Mapping[str, Callable[[], Player]]:
        """The players that know the game and need no training, by name."""
        return {name: PLAYERS[name] for name in players_of(self.game.name)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin a game. The seed decides the learner's seat, all dice and the opponent's choices."""
        super().reset(seed=seed, options=options)
        while True:
            seat, board, self._key = self.np_random.integers(0, 2**64, (3, 1), np.uint64)
            self._seat = (seat >> np.uint64(63)).astype(np.int8)
            self._choices[:] = 0
            self.game.reset(_ROW, board)
            self._answer()
            if not self.game.over[0]:
                return self._look()
            # In Ludo a player without a six may lose before its first move. Such a game has no decision: start another.

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play the learner's move, then the opponent's moves until it is the learner's turn or the game is over.

        Raises:
            IllegalMove: The action is not legal, or the game is over. Nothing has changed then.
        """
        self.game.play(_ROW, np.array([action], np.int64))
        self._answer()
        obs, info = self._look()
        over = bool(self.game.over[0])
        winner = int(self.game.winner[0])
        reward = (1.0 if winner == self._seat[0] else -1.0) if over and winner >= 0 else 0.0
        return obs, reward, over, False, info

    def close(self) -> None:
        """Close the game, if it has a `close` method (PettingZoo envs do)."""
        close = getattr(self.game, "close", None)
        if close is not None:
            close()

    def render(self) -> str | None:
        """The board as text."""
        return self.game.text(0) if self.render_mode == "ansi" else None

    def _answer(self) -> None:
        """Have the opponent move until it is the learner's turn."""
        game = self.game
        while not game.over[0] and game.mover[0] != self._seat[0]:
            noise = draws(self._key, self._choices)
            self._choices += 1
            game.play(_ROW, self._opponent.choose(game, _ROW, noise))

    def _look(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Observation and info from the learner's side, also if the opponent made the last move of the game."""
        mask = self.game.legal(_ROW)[0]
        if self.game.over[0]:
            obs = self.game.observe(_ROW, self._seat)[0]
            mask[:] = True  # not used, but a mask without a legal action would be refused
        else:
            obs = self.game.observe(_ROW)[0]
        return obs, {MASK_KEY: mask, "seat": int(self._seat[0])}
