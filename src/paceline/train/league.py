"""Self-play from the driver's side: takes snapshots, says who is met how often, and keeps the score.

learner.update -> new weights -> (now and then) a snapshot -> odds -> workers meet it -> results -> Elo
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Protocol

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algos.bad_updates import BadUpdates
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
from paceline.nets.policy import NetworkRecipe
from paceline.runtime.protocol import Share
from paceline.spec import EnvSpec
from paceline.train.loop import BatchIn, Learner, State

SELF = "self"
RANDOM = "random"
Sampling = Literal["uniform", "recent", "hardest"]
START_ELO = 1000.0
RANGE, BISECTIONS = 6000.0, 24
"""Where a rating is looked for, and how long: to a thousandth of a point."""
FADING = 0.99
"""What an update leaves of the results before it."""
RECENT = 0.7
"""Each older snapshot is met this much as often as the one after it."""


class Handed(Protocol):
    """What a league needs to know of a worker's program."""

    @property
    def shape(self) -> SlotShape:
        """Groups and their size, and what envs show."""

    @property
    def policy(self) -> NetworkRecipe:
        """What snapshots are of."""

    @property
    def seed(self) -> int:
        """The run's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueRecipe:
    """Who is met, as workers are handed it."""

    engine: Callable[[int], Game]
    """Makes boards."""
    names: tuple[str, ...]
    """Fixed players."""
    players: tuple[Callable[[], Player], ...]
    """What makes each of them."""
    shares: tuple[float, ...]
    """How often each of them is met."""
    self_share: float
    slots: int
    """Snapshots that are kept."""
    offered: int
    """Newest ones that are met."""
    sampling: Sampling
    snapshot_every: int
    samples: bool
    """Whether the policy draws its moves, rather than taking the best."""
    epsilon: float
    """How much a snapshot explores, as a share of what the learner does."""

    def fields(self, weights: int, n_envs: int) -> list[Field]:
        """What an arena must hold."""
        return OpponentPool.fields(slots=self.slots, fixed=len(self.names), weights=weights, n_envs=n_envs)

    def identity(self) -> dict[str, Any]:
        """What a run that goes on must agree on with the one before: the pool is laid out by it."""
        return {"opponents": list(self.names), "pool_size": self.slots}

    @property
    def stats(self) -> tuple[str, ...]:
        """What a league reports."""
        names = (*self.names, SELF) if self.self_share else self.names
        return ("elo", "snapshots", *(f"win_rate_{name}" for name in names))

    def block(self, arena: Arena, share: Share, program: Handed) -> GameBlock:
        """The boards of a worker's groups.

        Args:
            arena: Shared memory.
            share: The groups.
            program: What else a worker is handed.
        """
        size, spec, pool = program.shape.group_size, program.shape.spec, OpponentPool(arena)
        first, n = share.first_group * size, share.groups * size
        game = self.engine(n)
        opponents = Opponents(
            pool,
            [make() for make in self.players],
            partial(_actor, program.policy, spec, pool, size),
            sampled_move if self.samples else best_move,
            size,
        )
        episode = arena["episode"][program.shape.columns(share.first_group, share.groups)]
        return GameBlock(game, opponents, seed=program.seed, first_env=first, group_size=size, episode=episode)


def _actor(policy: NetworkRecipe, spec: EnvSpec, pool: OpponentPool, group_size: int, slot: int) -> Actor:
    network = policy.build(spec)
    bind(network, torch.from_numpy(pool.weights[slot]))
    return actor_for(network, spec, 1, group_size)


def bare_game(env: gym.Env[Any, Any]) -> GameHost | None:
    """The game that an env is; None where it is none, or where something around it has a say in what happens."""
    while isinstance(env, gym.wrappers.OrderEnforcing | gym.wrappers.PassiveEnvChecker):
        env = env.env
    return env if isinstance(env, GameHost) else None


def league_recipe(config: TrainConfig, bare: GameHost | None) -> LeagueRecipe | None:
    """Who a config's games are played against; None where the env is no game, or is wrapped.

    Args:
        config: Everything.
        bare: What `bare_game` found.

    Raises:
        ConfigError: Opponents are asked for that there are not.
    """
    env = config.env
    if bare is None:
        if env.opponents:
            raise ConfigError(f"opponents: {config.env_name} is no game of two, or is wrapped. Leave --opponents out.")
        return None
    asked = {str(name): float(share) for name, share in env.opponents.items()}
    asked = asked or {bare.opponent: 1.0}
    game = bare.game.name
    scripted = bare.scripted_players
    known = [*scripted, SELF]
    for name, share in asked.items():
        if name not in known:
            raise ConfigError(f"opponents: no player {name!r} of {game}. {nearest(name, known)}")
        if not share >= 0:
            raise ConfigError(f"opponents: {name}={share:g} must not be negative.")
    if not sum(asked.values()) > 0:
        raise ConfigError("opponents: somebody must be met (all shares are 0). Try self=0.5,random=0.5.")
    if SELF in asked and config.env.normalize_obs:
        raise ConfigError("normalize_obs: snapshots would see what they were not trained on. Leave it out.")
    self_share = asked.pop(SELF, 0.0)
    asked.setdefault(RANDOM, 0.0)  # who is met before there is a snapshot
    offered = min(env.pool_offered or max(1, env.pool_size // 2), env.pool_size)
    return LeagueRecipe(
        engine=bare.engine,
        names=tuple(asked),
        players=tuple(scripted[name] for name in asked),
        shares=tuple(asked.values()),
        self_share=self_share,
        # One more than are offered: the slot that is written anew is then nobody's opponent, or hardly anybody's.
        slots=max(env.pool_size, offered + 1) if self_share else 0,
        offered=offered,
        sampling=env.opponent_sampling,
        snapshot_every=env.snapshot_every,
        samples=config.training.network_outputs == "policy",
        epsilon=env.opponent_epsilon,
    )


class League:
    """Keeps the pool; the driver has it looked after at every update.

    Args:
        recipe: Who is met.
        arena: Shared memory.
        weights: The learner's newest.
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
        self._seen = np.zeros_like(self.pool.results[0])  # [K, 3] results that were counted
        self._lately = np.zeros((fixed + slots, 3))  # fades, so that it says how strong each is now
        self._snapshots = 0
        self._set_odds()

    def look_after(self, epsilon: float) -> None:
        """Take in results, perhaps take a snapshot, and say who is met from now on.

        Where a run must be repeatable, workers have to rest meanwhile.

        Args:
            epsilon: How much the learner explores.
        """
        recipe, pool = self._recipe, self.pool
        new = pool.results.sum(0) - self._seen
        self._seen += new
        self._lately = FADING * self._lately + new
        self._rate()
        if recipe.self_share and self._tracker.episodes >= (self._snapshots + 1) * recipe.snapshot_every:
            self._snapshot()
        pool.next_epsilon[0] = epsilon * recipe.epsilon
        self._set_odds()

    def stats(self) -> dict[str, float]:
        """How it stands."""
        recipe, stats = self._recipe, {"elo": self.elo, "snapshots": float(self._snapshots)}
        for name, rate in zip((*recipe.names, SELF), self.win_rates(), strict=True):
            if rate is not None:  # who is never met has none, and snapshots of nobody neither
                stats[f"win_rate_{name}"] = rate
        return stats

    def win_rates(self) -> list[float | None]:
        """Of the learner lately: against each fixed player, and against all snapshots together."""
        fixed = len(self._recipe.names)
        by_name = [*self._lately[:fixed], self._lately[fixed:].sum(0)]
        return [float(one[WIN] / one.sum()) if one.sum() >= 1.0 else None for one in by_name]

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps."""
        pool = self.pool
        return {
            "weights": pool.weights.copy(),
            "born": pool.born.copy(),
            "results": pool.results.copy(),
            "next_epsilon": pool.next_epsilon.copy(),
            "seen": self._seen.copy(),
            "lately": self._lately.copy(),
            "elos": self._elos.copy(),
            "elo": np.array([self.elo, self._snapshots], np.float64),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from `state()`."""
        pool = self.pool
        for name in ("weights", "born", "results", "next_epsilon"):
            getattr(pool, name)[...] = state[name]
        self._seen[...], self._lately[...], self._elos[...] = state["seen"], state["lately"], state["elos"]
        self.elo, self._snapshots = float(state["elo"][0]), int(state["elo"][1])
        self._set_odds()

    def _rate(self) -> None:
        """The rating that makes recent results most likely, where random has 1000 and a snapshot what it had at birth.

        Games against all of them count at once. A rating that is moved a little by every game would grow for ever: each
        snapshot is beaten, and those who lose to random now and then are not infinitely strong.
        """
        games = self._lately.sum(1)
        scored = self._lately @ np.array([0.0, 0.5, 1.0])
        known = np.concatenate([[self._random], np.arange(len(self._recipe.names), len(games))])
        known = known[games[known] > 0]
        low, high = START_ELO - RANGE, START_ELO + RANGE
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            expected = 1.0 / (1.0 + 10.0 ** ((self._elos[known] - middle) / 400.0))
            # As if one more game had been drawn with random: a clean sweep is strong, but finite.
            prior = 0.5 - 1.0 / (1.0 + 10.0 ** ((START_ELO - middle) / 400.0))
            ahead = float((scored[known] - games[known] * expected).sum()) + prior
            low, high = (middle, high) if ahead > 0 else (low, middle)
        self.elo = (low + high) / 2

    def _snapshot(self) -> None:
        """The weights as they are now replace the oldest snapshot."""
        slot = self._snapshots % self._recipe.slots
        self.pool.weights[slot] = self._weights.vector.numpy()
        self.pool.born[slot] = self._snapshots
        number = len(self._recipe.names) + slot
        self._elos[number], self._lately[number] = self.elo, 0.0
        self._snapshots += 1

    def _set_odds(self) -> None:
        recipe, fixed = self._recipe, len(self._recipe.names)
        odds = np.zeros_like(self.pool.odds)
        odds[:fixed] = recipe.shares
        born = self.pool.born
        offered = np.flatnonzero((born != EMPTY) & (born >= self._snapshots - recipe.offered))
        if len(offered):
            wanted = self._wanted(offered)
            odds[fixed + offered] = recipe.self_share * wanted / wanted.sum()
        else:
            odds[self._random] += recipe.self_share
        self.pool.odds[:] = odds

    def _wanted(self, slots: NDArray[np.intp]) -> NDArray[np.float64]:
        """How much each of these snapshots is wanted."""
        match self._recipe.sampling:
            case "recent":
                age = self._snapshots - 1 - self.pool.born[slots]
                wanted: NDArray[np.float64] = RECENT ** age.astype(np.float64)
                return wanted
            case "hardest":
                lately = self._lately[len(self._recipe.names) + slots]
                # As if one game each had been won and lost: a newcomer is worth meeting.
                beaten: NDArray[np.float64] = (lately[:, WIN] + 0.5 * lately[:, DRAW] + 1.0) / (lately.sum(1) + 2.0)
                return np.square(1.0 - beaten) + 1e-3
        return np.ones(len(slots))


class LeagueLearner(Generic[BatchIn]):
    """A learner that also updates its league after every update.

    Args:
        learner: Learns from the batches.
        league: Its opponents.
        alone: Whether this is the only place that updates the league. In a pipeline workers play while the learner
            learns, so the collector updates the league instead, before it begins a rollout.
    """

    def __init__(self, learner: Learner[BatchIn], league: League, *, alone: bool = True) -> None:
        self._learner, self._league, self._alone = learner, league, alone

    @property
    def version(self) -> int:
        """See `Learner.version`."""
        return self._learner.version

    @property
    def lag(self) -> int:
        """See `Learner.lag`."""
        return self._learner.lag

    @property
    def bad(self) -> BadUpdates:
        """See `Learner.bad`."""
        return self._learner.bad

    def update(self, batch: BatchIn, progress: float) -> dict[str, float]:
        """Learn, then update the league; adds Elo and win rates to the statistics."""
        stats = self._learner.update(batch, progress)
        if self._alone:
            self._league.look_after(stats.get("epsilon", 0.0))
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


def in_league(learner: Learner[BatchIn], league: League | None, *, alone: bool = True) -> Learner[BatchIn]:
    """The learner itself without a league, otherwise one that updates the league too; see `LeagueLearner`."""
    return learner if league is None else LeagueLearner(learner, league, alone=alone)
