"""Self-play in the driver: stores snapshots of the learner, sets how often each opponent plays, and rates by Elo.

learner.update -> new weights -> (every N episodes) a snapshot -> odds -> workers draw opponents -> results -> Elo
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from paceline.collect.selfplay import GameBlock, Opponents, best_move, sampled_move
from paceline.config.train_config import TrainConfig
from paceline.envs.game import Game, GameHost, Player
from paceline.errors import ConfigError, nearest
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.opponent_pool import DRAW, EMPTY, WIN, OpponentPool
from paceline.memory.parts import part, under
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.weights import Weights
from paceline.nets.actor import Actor, actor_for
from paceline.nets.flat import bind
from paceline.nets.policy import PolicyRecipe
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec
from paceline.train.checkpoint import State
from paceline.train.loop import BatchIn, Learner

SELF = "self"
RANDOM = "random"
Sampling = Literal["uniform", "recent", "hardest"]
START_ELO = 1000.0
RANGE, BISECTIONS = 6000.0, 24
"""The rating is searched within RANGE points around START_ELO by bisection, to a thousandth of a point."""
DECAY = 0.99
"""Factor that older results are multiplied with at each update."""
SAVED = ("weights", "born", "results", "next_epsilon")
"""Arrays of the pool that a checkpoint contains."""
RECENT = 0.7
"""With sampling `recent`: how often a snapshot plays, relative to the next newer one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueRecipe:
    """Opponents of a run and how to make them. Pickled to every worker."""

    engine: Callable[[int], Game]
    """Makes the given number of boards."""
    names: tuple[str, ...]
    """Names of the scripted opponents."""
    players: tuple[Callable[[], Player], ...]
    """Makes each scripted opponent."""
    shares: tuple[float, ...]
    """Share of episodes against each scripted opponent."""
    self_share: float
    """Share of episodes against snapshots of the learner."""
    slots: int
    """Number of stored snapshots."""
    offered: int
    """Number of newest snapshots that play."""
    sampling: Sampling
    """How opponents are drawn from them."""
    snapshot_every: int
    """Episodes between two snapshots."""
    samples: bool
    """Whether snapshots sample their moves, instead of taking the best one."""
    epsilon: float
    """Epsilon of snapshots, as a fraction of the learner's."""

    def fields(self, weights: int, n_envs: int) -> list[Field]:
        """The fields of the arena.

        Args:
            weights: Number of parameters.
            n_envs: Number of envs.
        """
        return OpponentPool.fields(slots=self.slots, fixed=len(self.names), weights=weights, n_envs=n_envs)

    def identity(self) -> dict[str, Any]:
        """Settings that a resumed run must share with the earlier one: the layout of the pool depends on them."""
        return {"opponents": list(self.names), "pool_size": self.slots}

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the `train/` statistics of a league."""
        names = (*self.names, SELF) if self.self_share else self.names
        return ("elo", "snapshots", *(f"win_rate_{name}" for name in names))

    def block(self, arena: Arena, share: Share, shape: SlotShape, policy: PolicyRecipe, *, seed: int) -> GameBlock:
        """Make the boards of a worker, with their opponents. Runs in the worker.

        Args:
            arena: Shared memory.
            share: The groups of the worker.
            shape: Shape of a slot.
            policy: The network of the learner and of its snapshots.
            seed: Seed of the run.
        """
        size, spec, pool = shape.group_size, shape.spec, OpponentPool(arena)
        first, n = share.first_group * size, share.groups * size
        game = self.engine(n)
        opponents = Opponents(
            pool,
            [make() for make in self.players],
            partial(_actor, policy, spec, pool, size),
            sampled_move if self.samples else best_move,
            size,
        )
        episode = arena["episode"][shape.columns(share.first_group, share.groups)]
        return GameBlock(game, opponents, seed=seed, first_env=first, episode=episode)


def _actor(policy: PolicyRecipe, spec: EnvSpec, pool: OpponentPool, group_size: int, slot: int) -> Actor:
    """An actor with the weights of a snapshot, which are views of the pool."""
    network = policy.build(spec)
    bind(network, torch.from_numpy(pool.weights[slot]))
    return actor_for(network, spec, 1, group_size)


def bare_game(env: gym.Env[Any, Any]) -> GameHost | None:
    """The two-player game of an env; None if it is not one, or if a wrapper around it may change rewards or actions."""
    while isinstance(env, gym.wrappers.OrderEnforcing | gym.wrappers.PassiveEnvChecker):
        env = env.env
    return env if isinstance(env, GameHost) else None


def league_recipe(config: TrainConfig, bare: GameHost | None) -> LeagueRecipe | None:
    """The opponents that a config asks for; None if the env is not a game without wrappers.

    Args:
        config: All settings.
        bare: The game, from `bare_game`.

    Raises:
        ConfigError: An opponent is unknown, or a share is out of range.
    """
    env = config.env
    if bare is None:
        if env.opponents:
            raise ConfigError(
                f"opponents: {config.env_name} is not a two-player game, or is wrapped. Leave out --opponents."
            )
        return None
    asked = {str(name): float(share) for name, share in env.opponents.items()} or {bare.opponent: 1.0}
    game = bare.game.name
    scripted = bare.scripted_players
    known = [*scripted, SELF]
    for name, share in asked.items():
        if name not in known:
            raise ConfigError(f"opponents: no player {name!r} of {game}. {nearest(name, known)}")
        if not share >= 0:
            raise ConfigError(f"opponents: {name}={share:g} must not be negative.")
    if not sum(asked.values()) > 0:
        raise ConfigError("opponents: at least one share must be positive (all are 0). Try self=0.5,random=0.5.")
    if SELF in asked and config.env.normalize_obs:
        raise ConfigError(
            "normalize_obs: unsupported with the opponent `self`: snapshots would get observations scaled by newer "
            "statistics than those that they were trained with. Leave it out."
        )
    self_share = asked.pop(SELF, 0.0)
    asked.setdefault(RANDOM, 0.0)  # the opponent before the first snapshot
    offered = min(env.pool_offered or max(1, env.pool_size // 2), env.pool_size)
    return LeagueRecipe(
        engine=bare.engine,
        names=tuple(asked),
        players=tuple(scripted[name] for name in asked),
        shares=tuple(asked.values()),
        self_share=self_share,
        # One more than play: the next snapshot overwrites one that (almost) no running episode plays against.
        slots=max(env.pool_size, offered + 1) if self_share else 0,
        offered=offered,
        sampling=env.opponent_sampling,
        snapshot_every=env.snapshot_every,
        samples=config.training.network_outputs == "policy",
        epsilon=env.opponent_epsilon,
    )


class League:
    """Opponents of self-play: the driver updates the pool of snapshots, the odds and the ratings after each update.

    Args:
        recipe: The opponents.
        arena: Shared memory.
        weights: The learner's published weights, which snapshots are copied from.
        tracker: Counts episodes.
    """

    def __init__(self, recipe: LeagueRecipe, arena: Arena, weights: Weights, tracker: EpisodeTracker) -> None:
        self._recipe, self._weights, self._tracker = recipe, weights, tracker
        self.pool = OpponentPool(arena)
        self.pool.born[:] = EMPTY
        fixed, slots = len(recipe.names), recipe.slots
        self._random = recipe.names.index(RANDOM)
        self.elo = START_ELO
        self._elos = np.full(fixed + slots, START_ELO)
        self._seen = np.zeros_like(self.pool.results[0])  # [K, 3] results counted so far
        self._recent = np.zeros((fixed + slots, 3))  # [K, 3] recent results: older ones are weighted less
        self._snapshots = 0
        self._set_odds()

    def update(self, epsilon: float) -> None:
        """Read the results of workers, update the rating, store a snapshot if one is due, and set the odds.

        For reproducible runs, call it while workers are idle.

        Args:
            epsilon: The learner's epsilon.
        """
        recipe, pool = self._recipe, self.pool
        new = pool.results.sum(0) - self._seen
        self._seen += new
        self._recent = DECAY * self._recent + new
        self._rate()
        if recipe.self_share and self._tracker.episodes >= (self._snapshots + 1) * recipe.snapshot_every:
            self._snapshot()
        pool.next_epsilon[0] = epsilon * recipe.epsilon
        self._set_odds()

    def stats(self) -> dict[str, float]:
        """Elo, number of snapshots, and recent win rates, by the names of the `train/` tags.

        One win rate is against all snapshots together. An opponent without recent games has none.
        """
        names, stats = self._recipe.names, {"elo": self.elo, "snapshots": float(self._snapshots)}
        scripted, snapshots = np.split(self._recent, [len(names)])
        for name, results in zip((*names, SELF), [*scripted, snapshots.sum(0)], strict=True):
            if results.sum() >= 1.0:
                stats[f"win_rate_{name}"] = float(results[WIN] / results.sum())
        return stats

    def state(self) -> dict[str, NDArray[Any]]:
        """State for a checkpoint."""
        return {
            **{name: getattr(self.pool, name).copy() for name in SAVED},
            "seen": self._seen.copy(),
            "lately": self._recent.copy(),
            "elos": self._elos.copy(),
            "elo": np.array([self.elo, self._snapshots], np.float64),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        for name in SAVED:
            getattr(self.pool, name)[...] = state[name]
        self._seen[...], self._recent[...], self._elos[...] = state["seen"], state["lately"], state["elos"]
        self.elo, self._snapshots = float(state["elo"][0]), int(state["elo"][1])
        self._set_odds()

    def _rate(self) -> None:
        """Set Elo to the rating that makes the recent results most likely.

        The random player has 1000, a snapshot the rating that the learner had when it was stored; other opponents do
        not count. The usual Elo update per game would grow without bound: the learner beats each of its snapshots.
        """
        games = self._recent.sum(1)
        scored = self._recent @ np.array([0.0, 0.5, 1.0])
        known = np.concatenate([[self._random], np.arange(len(self._recipe.names), len(games))])
        known = known[games[known] > 0]
        low, high = START_ELO - RANGE, START_ELO + RANGE
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            expected = 1.0 / (1.0 + 10.0 ** ((self._elos[known] - middle) / 400.0))
            # A prior of one draw with random keeps the rating finite if the learner wins every game.
            prior = 0.5 - 1.0 / (1.0 + 10.0 ** ((START_ELO - middle) / 400.0))
            ahead = float((scored[known] - games[known] * expected).sum()) + prior
            low, high = (middle, high) if ahead > 0 else (low, middle)
        self.elo = (low + high) / 2

    def _snapshot(self) -> None:
        """Replace the oldest snapshot with the present weights."""
        slot = self._snapshots % self._recipe.slots
        self.pool.weights[slot] = self._weights.vector.numpy()
        self.pool.born[slot] = self._snapshots
        number = len(self._recipe.names) + slot
        self._elos[number], self._recent[number] = self.elo, 0.0
        self._snapshots += 1

    def _set_odds(self) -> None:
        recipe, fixed = self._recipe, len(self._recipe.names)
        odds = np.zeros_like(self.pool.odds)
        odds[:fixed] = recipe.shares
        born = self.pool.born
        offered = np.flatnonzero((born != EMPTY) & (born >= self._snapshots - recipe.offered))
        if len(offered):
            relative = self._relative_odds(offered)
            odds[fixed + offered] = recipe.self_share * relative / relative.sum()
        else:
            odds[self._random] += recipe.self_share
        self.pool.odds[:] = odds

    def _relative_odds(self, slots: NDArray[np.intp]) -> NDArray[np.float64]:
        """Relative odds of these snapshots."""
        match self._recipe.sampling:
            case "recent":
                age = self._snapshots - 1 - self.pool.born[slots]
                relative: NDArray[np.float64] = RECENT ** age.astype(np.float64)
                return relative
            case "hardest":
                recent = self._recent[len(self._recipe.names) + slots]
                # A prior of one win and one loss: a snapshot without games gets odds in the middle.
                beaten: NDArray[np.float64] = (recent[:, WIN] + 0.5 * recent[:, DRAW] + 1.0) / (recent.sum(1) + 2.0)
                return np.square(1.0 - beaten) + 1e-3
        return np.ones(len(slots))


class LeagueLearner(Generic[BatchIn]):
    """A learner that also updates its league after every update.

    Args:
        learner: Learns from the batches.
        league: Its opponents.
        updates_league: Whether to update the league here. False in a pipeline: workers play while the learner learns,
            so the collector updates the league, before it begins a rollout.
    """

    def __init__(self, learner: Learner[BatchIn], league: League, *, updates_league: bool = True) -> None:
        self._learner, self._league, self._updates_league = learner, league, updates_league
        self.bad = learner.bad
        """See `Learner.bad`."""

    @property
    def version(self) -> int:
        """See `Learner.version`."""
        return self._learner.version

    @property
    def lag(self) -> int:
        """See `Learner.lag`."""
        return self._learner.lag

    def update(self, batch: BatchIn, progress: float) -> dict[str, float]:
        """Learn, then update the league; adds Elo and win rates to the statistics."""
        stats = self._learner.update(batch, progress)
        if self._updates_league:
            self._league.update(stats.get("epsilon", 0.0))
        return {**stats, **self._league.stats()}

    def state(self) -> State:
        """State of the learner, and of the league under `league/`."""
        return {**self._learner.state(), **under("league/", self._league.state())}

    def load(self, state: State) -> None:
        """Continue from `state()`."""
        self._league.load(part(state, "league/"))
        self._learner.load(state)

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """See `Learner.load_weights`."""
        self._learner.load_weights(weights)


def in_league(learner: Learner[BatchIn], league: League | None, *, updates_league: bool = True) -> Learner[BatchIn]:
    """The learner itself if there is no league, otherwise a `LeagueLearner`."""
    return learner if league is None else LeagueLearner(learner, league, updates_league=updates_league)
