"""A trained agent as a player: it sits wherever a fixed player does, in matches and against people.

    run, checkpoint or saved model -> weights, statistics -> one forward for `ROWS` boards -> legal moves

Also finds players of either kind by what a user wrote, and the game that they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from paceline.collect.selfplay import best_move, sampled_move
from paceline.config.train_config import TrainConfig
from paceline.domains.games import GAMES, Engine, game_of
from paceline.domains.games.players import PLAYERS, player
from paceline.envs.game import Game, Player, Rows
from paceline.errors import ConfigError, nearest
from paceline.nets.actor import Actor, actor_for
from paceline.nets.flat import bind
from paceline.ops.random_bits import pick
from paceline.spec import PLAIN
from paceline.train import checkpoint, model
from paceline.train.checkpoint import Snapshot
from paceline.train.recipes import policy_recipe

ROWS = 64
"""Boards of one forward: an actor is made for a fixed number. Fewer are padded, more come one after another."""

OPENINGS = {"connect_four": 4, "tic_tac_toe": 2}
"""Random moves that games without dice begin with where players would repeat themselves otherwise. Enough for many
different games (about 1,000 and 72 boards), and few enough for the rest of the game to decide it."""

Outputs = Literal["policy", "values", "dueling values"]
"""What a network says of the moves: logits, what each is worth, or what each is better than the mean."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a network makes of one board, for its mover."""

    moves: NDArray[np.float64]  # [actions]  NaN where illegal
    are_values: bool
    """Whether `moves` is what each move is worth; else how likely the policy is to draw it."""
    position: float
    """What the board is worth: 1 is won, -1 is lost, discounted."""


class NetPlayer:
    """Plays as a network does. Made by `load_net`; serves any number of boards, single-threaded.

    Args:
        actor: The forward, for `ROWS` rows.
        game_name: The `Game.name` that it has learned.
        outputs: What the forward's first result means.
        sample: Draw moves from the policy, rather than take the most probable one. A network of action values has
            nothing to draw from and plays the best.
    """

    def __init__(self, actor: Actor, game_name: str, *, outputs: Outputs = "policy", sample: bool = False) -> None:
        self.game_name = game_name
        self.varies = sample and outputs == "policy"
        """Whether it may play differently on equal boards."""
        self._actor, self._outputs = actor, outputs
        self._pick = sampled_move if self.varies else best_move

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Player.choose`.

        Raises:
            ConfigError: The game is not the one that it has learned.
        """
        moves = np.empty(len(rows), np.int64)
        for first in range(0, len(rows), ROWS):
            part = slice(first, first + ROWS)
            params, _ = self._look(game, rows[part])
            moves[part] = self._pick(params, game.legal(rows[part]), noise[part])
        return moves

    def opinion(self, game: Game, row: int) -> Opinion:
        """What it makes of a board that is not over."""
        rows = np.array([row])
        params, value = (array[0].astype(np.float64) for array in self._look(game, rows))
        legal = game.legal(rows)[0]
        if self._outputs == "policy":
            chances = np.exp(params - params[legal].max()) * legal
            return Opinion(np.where(legal, chances / chances.sum(), np.nan), False, float(value))
        values = params + (value - params.mean() if self._outputs == "dueling values" else 0.0)
        return Opinion(np.where(legal, values, np.nan), True, float(values[legal].max()))

    def _look(self, game: Game, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The forward on at most `ROWS` boards; the next call overwrites the results."""
        if game.name != self.game_name:
            raise _other_game("this network", self.game_name, game.name)
        # Always as many rows: the last bits of a product depend on their number.
        seen = np.zeros((ROWS, game.obs_size), np.float32)
        seen[: len(rows)] = game.observe(rows)
        params, value = self._actor({PLAIN: seen})
        return params[: len(rows)], value[: len(rows)]


class RandomOpening:
    """A player whose first moves of a game are random: two who never vary would play the same game over and over.

    For games of stones, whose boards show how many moves were made.

    Args:
        player: Who plays from then on.
        moves: Of both players together.
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


def opening_for(game_name: str, players: Sequence[Player], asked: int | None = None) -> int:
    """Random moves that every game between these players begins with.

    Args:
        game_name: What they play.
        players: Who may meet.
        asked: As many as the user wants; None takes as many as it needs for no two of them to repeat one game.

    Raises:
        ConfigError: Some are asked for in a game with dice.
    """
    if asked and game_name not in OPENINGS:
        raise ConfigError(f"opening={asked}: dice make every game of {game_name} another one already. Leave it out.")
    if asked is not None:
        return asked
    rigid = [one for one in players if isinstance(one, NetPlayer) and not one.varies]
    return OPENINGS.get(game_name, 0) if len(rigid) > 1 else 0


def load_net(path: Path, *, sample: bool = False) -> NetPlayer:
    """The player that a run's newest checkpoint, a checkpoint or a saved model stands for.

    Args:
        path: What a run or `save` wrote.
        sample: Draw moves from the policy, rather than take the most probable one.

    Raises:
        CheckpointError: There is nothing to load, or it is damaged.
        ConfigError: It has not learned a game of two.
    """
    snapshot = checkpoint.load(checkpoint.find(path))
    config, engine = _config(snapshot)
    loaded = model.load(config, snapshot)
    network = policy_recipe(config).build(loaded.spec)
    bind(network, loaded.weights)
    actor = actor_for(network, loaded.spec, 1, ROWS, loaded.obs_norm)
    return NetPlayer(actor, engine.name, outputs=config.training.network_outputs, sample=sample)


def load_player(text: str, game_name: str, *, sample: bool = False) -> Player:
    """A player by name, or from a run, a checkpoint or a saved model. Names win: write ./random for a folder.

    Args:
        text: What the user wrote.
        game_name: The `Game.name` that is to be played.
        sample: For a trained one: draw moves from the policy.

    Raises:
        ConfigError: There is no such player, or it does not know the game.
        CheckpointError: There is nothing to load, or it is damaged.
    """
    return load_players([text], game_name, sample=sample)[1][0]


def load_players(
    texts: Sequence[str], game_name: str | None = None, *, sample: bool = False
) -> tuple[str, list[Player]]:
    """Several players, and the game that they play: the one given, or else the one that the trained have learned.

    Raises:
        ConfigError: As `load_player`, and where nobody says which game it is.
        CheckpointError: As `load_player`.
    """
    for text in texts:
        if text not in PLAYERS and "/" not in text and not Path(text).exists():
            raise ConfigError(f"player {text!r}: neither a folder nor a fixed player. {nearest(text, PLAYERS)}")
    nets = {text: load_net(Path(text), sample=sample) for text in texts if text not in PLAYERS}
    for text, net in nets.items():
        game_name = game_name or net.game_name
        if net.game_name != game_name:
            raise _other_game(text, net.game_name, game_name)
    if game_name is None:
        raise ConfigError(
            f"game: must be named where nobody was trained for one ({', '.join(texts)}). Use --game {_game_ids()[0]}."
        )
    return game_name, [nets[text] if text in nets else player(text, game_name) for text in texts]


def game_named(text: str) -> str:
    """The `Game.name` that an env's id such as `paceline/Ludo-v0` stands for, or that is named itself.

    Raises:
        ConfigError: There is no such game.
    """
    engine = GAMES.get(text) or game_of(text)
    if engine is None:
        raise ConfigError(f"game {text!r}: unknown. {nearest(text, _game_ids())}")
    return engine.name


def _config(snapshot: Snapshot) -> tuple[TrainConfig, Engine]:
    """How a snapshot was trained, and the game that it has learned."""
    saved = model.saved_settings(snapshot)
    engine = game_of(saved["env"]) if isinstance(saved["env"], str) else None
    if engine is None:
        raise ConfigError(
            f"{snapshot.path}: has learned {saved['env']}, which is no game of two. "
            f"Name a run of one: {', '.join(_game_ids())}."
        )
    config = TrainConfig.from_flat(**saved)
    if config.env.wrappers or config.env.frame_stack > 1:
        raise ConfigError(
            f"{snapshot.path}: has learned {saved['env']} through wrappers and would not know a bare board. "
            "Name a run without --wrappers and --frame-stack."
        )
    return config, engine


def _game_ids() -> list[str]:
    return [name for name in gym.registry if game_of(name) is not None]


def _other_game(who: str, learned: str, asked: str) -> ConfigError:
    return ConfigError(f"{who}: has learned {learned} and does not know {asked}. All players must know one game.")
