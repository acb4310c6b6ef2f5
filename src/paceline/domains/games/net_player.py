"""`NetPlayer`: a trained agent as a player, for matches and for games against people.

    run, checkpoint or saved model -> weights, statistics -> one forward pass for `ROWS` boards -> legal moves

`load_players` finds scripted and trained players by name or path, and the game that they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from paceline.collect.selfplay import best_move, sampled_move
from paceline.config.algorithm_settings import NetworkOutputs
from paceline.config.train_config import TrainConfig
from paceline.domains.games import GAMES, Engine, game_of
from paceline.domains.games.players import PLAYERS, player
from paceline.envs.game import Game, Player, Rows
from paceline.errors import ConfigError, nearest
from paceline.nets.actor import Actor, actor_for
from paceline.ops.random_bits import pick
from paceline.spec import PLAIN
from paceline.train import checkpoint, model
from paceline.train.checkpoint import Snapshot

ROWS = 64
"""Boards per forward pass, which is fixed for an actor. Fewer boards are padded, more take several passes."""

OPENINGS = {"connect_four": 4, "tic_tac_toe": 2}
"""Random moves at the start of games without dice, if the players would otherwise repeat the same game. They give about
1,000 and 72 different boards, and the rest of the game still decides who wins."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """A network's evaluation of one board, from the side of the player to move."""

    moves: NDArray[np.float64]  # [actions]  NaN where illegal
    are_values: bool
    """Whether `moves` are action values; else they are probabilities of the policy."""
    position: float
    """Value of the board: 1 is won, -1 is lost, discounted."""


class NetPlayer:
    """A player that moves as a network says. Made by `load_net`. Plays any number of boards; not thread-safe.

    Args:
        actor: The forward pass, for `ROWS` rows.
        game_name: The `Game.name` that the network was trained on.
        outputs: Meaning of the first output of the forward pass.
        sample: Whether to sample moves from the policy instead of taking the most probable one. Networks with action
            values always play the best move.
    """

    def __init__(
        self, actor: Actor, game_name: str, *, outputs: NetworkOutputs = "policy", sample: bool = False
    ) -> None:
        self.game_name = game_name
        self.varies = sample and outputs == "policy"
        """Whether its moves on equal boards may differ."""
        self._actor, self._outputs = actor, outputs
        self._pick = sampled_move if self.varies else best_move

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`.

        Raises:
            ConfigError: The network was trained on another game.
        """
        moves = np.empty(len(rows), np.int64)
        for first in range(0, len(rows), ROWS):
            part = slice(first, first + ROWS)
            params, _ = self._look(game, rows[part])
            moves[part] = self._pick(params, game.legal(rows[part]), noise[part])
        return moves

    def opinion(self, game: Game, row: int) -> Opinion:
        """Evaluate a board whose game is not over."""
        rows = np.array([row])
        params, value = (array[0].astype(np.float64) for array in self._look(game, rows))
        legal = game.legal(rows)[0]
        if self._outputs == "policy":
            weights = np.exp(params - params[legal].max()) * legal
            return Opinion(np.where(legal, weights / weights.sum(), np.nan), False, float(value))
        values = params + (value - params.mean() if self._outputs == "dueling values" else 0.0)
        return Opinion(np.where(legal, values, np.nan), True, float(values[legal].max()))

    def _look(self, game: Game, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Forward pass on at most `ROWS` boards. The next call overwrites the returned arrays."""
        if game.name != self.game_name:
            raise _other_game("this network", self.game_name, game.name)
        # Always `ROWS` rows: floating-point results of a matrix product depend on the number of rows.
        seen = np.zeros((ROWS, game.obs_size), np.float32)
        seen[: len(rows)] = game.observe(rows)
        params, value = self._actor({PLAIN: seen})
        return params[: len(rows)], value[: len(rows)]


class RandomOpening:
    """A player whose first moves are random, because two deterministic players would repeat the same game.

    Only for games whose number of stones is the number of moves so far (Connect Four, Tic-tac-toe).

    Args:
        player: The player that makes all later moves.
        moves: Number of random moves, of both players together.
    """

    def __init__(self, player: Player, moves: int) -> None:
        self._player, self._moves = player, moves

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`."""
        early = game.observe(rows).sum(axis=1) < self._moves
        moves = np.empty(len(rows), np.int64)
        if early.any():
            moves[early] = pick(game.legal(rows[early]), noise[early])
        if not early.all():
            moves[~early] = self._player.choose(game, rows[~early], noise[~early])
        return moves


def opening_for(game_name: str, players: Sequence[Player], moves: int | None = None) -> int:
    """Number of random moves at the start of every game between these players.

    Args:
        game_name: The game.
        players: All players of the tournament.
        moves: The user's choice. None: 0, or `OPENINGS` if two of the players are deterministic.

    Raises:
        ConfigError: The user wants random moves in a game with dice.
    """
    if moves and game_name not in OPENINGS:
        raise ConfigError(f"opening={moves}: {game_name} has dice, so its games differ anyway. Leave it out.")
    if moves is not None:
        return moves
    deterministic = [one for one in players if isinstance(one, NetPlayer) and not one.varies]
    return OPENINGS.get(game_name, 0) if len(deterministic) > 1 else 0


def load_net(path: Path, *, sample: bool = False) -> NetPlayer:
    """Load a trained player.

    Args:
        path: A run (its newest checkpoint is loaded), a checkpoint, or a saved model.
        sample: Whether to sample moves from the policy instead of taking the most probable one.

    Raises:
        CheckpointError: The path has no checkpoint or model, or it is damaged.
        ConfigError: The agent was not trained on a two-player game.
    """
    snapshot = checkpoint.load(checkpoint.find(path))
    config, engine = _config(snapshot)
    loaded = model.load(config, snapshot)
    actor = actor_for(loaded.policy, loaded.spec, 1, ROWS, loaded.obs_norm)
    return NetPlayer(actor, engine.name, outputs=config.training.network_outputs, sample=sample)


def load_player(text: str, game_name: str, *, sample: bool = False) -> Player:
    """Load a player by name, or from a run, a checkpoint or a saved model.

    Args:
        text: A name in `PLAYERS` or a path. Names have precedence: write ./random for a folder of that name.
        game_name: The `Game.name` to play.
        sample: Whether a trained player samples its moves from the policy.

    Raises:
        ConfigError: There is no such player, or it cannot play the game.
        CheckpointError: The path has no checkpoint or model, or it is damaged.
    """
    return load_players([text], game_name, sample=sample)[1][0]


def load_players(
    texts: Sequence[str], game_name: str | None = None, *, sample: bool = False
) -> tuple[str, list[Player]]:
    """Load several players; returns the name of their game and the players.

    Args:
        texts: Names or paths, see `load_player`.
        game_name: The `Game.name` to play. Default: the game of the trained players.
        sample: Whether trained players sample their moves from the policy.

    Raises:
        ConfigError: As `load_player`, or no game is given and no player is trained.
        CheckpointError: As `load_player`.
    """
    for text in texts:
        if text not in PLAYERS and "/" not in text and not Path(text).exists():
            raise ConfigError(f"player {text!r}: neither a path nor the name of a player. {nearest(text, PLAYERS)}")
    nets = {text: load_net(Path(text), sample=sample) for text in texts if text not in PLAYERS}
    for text, net in nets.items():
        game_name = game_name or net.game_name
        if net.game_name != game_name:
            raise _other_game(text, net.game_name, game_name)
    if game_name is None:
        raise ConfigError(
            f"game: required, because none of these players is trained ({', '.join(texts)}). "
            f"Use --game {_game_ids()[0]}."
        )
    return game_name, [nets[text] if text in nets else player(text, game_name) for text in texts]


def game_named(text: str) -> str:
    """The `Game.name` for an env id such as `paceline/Ludo-v0`, or for the name of a game.

    Raises:
        ConfigError: There is no such game.
    """
    engine = GAMES.get(text) or game_of(text)
    if engine is None:
        raise ConfigError(f"game {text!r}: unknown. {nearest(text, _game_ids())}")
    return engine.name


def _config(snapshot: Snapshot) -> tuple[TrainConfig, Engine]:
    """The config of a snapshot and the engine of its game."""
    saved = model.saved_settings(snapshot)
    engine = game_of(saved["env"]) if isinstance(saved["env"], str) else None
    if engine is None:
        raise ConfigError(
            f"{snapshot.path}: was trained on {saved['env']}, which is not a two-player game. "
            f"Give a run of one of these: {', '.join(_game_ids())}."
        )
    config = TrainConfig.from_flat(**saved)
    if config.env.wrappers or config.env.frame_stack > 1:
        raise ConfigError(
            f"{snapshot.path}: was trained on {saved['env']} with wrappers, and this command shows it the bare board. "
            "Give a run without --wrappers and --frame-stack."
        )
    return config, engine


def _game_ids() -> list[str]:
    return [name for name in gym.registry if game_of(name) is not None]


def _other_game(player: str, trained_on: str, game: str) -> ConfigError:
    return ConfigError(f"{player}: was trained on {trained_on} and cannot play {game}. All players need the same game.")
