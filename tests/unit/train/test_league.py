"""Self-play in the driver: snapshots, odds of opponents, and ratings."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tests.inside import inside

from paceline import PPO
from paceline.config.algorithms import ALGORITHMS
from paceline.config.train_config import TrainConfig
from paceline.domains.games.env import GameEnv
from paceline.domains.games.players import Minimax, RandomPlayer
from paceline.domains.games.tic_tac_toe import TicTacToe
from paceline.integrations.pettingzoo import PettingZooGame, aec_env
from paceline.memory.opponent_pool import EMPTY, LOSS, WIN
from paceline.train.league import RECENT, League, LeagueRecipe, Sampling
from paceline.train.run import Run

PARAMETERS = 4


class Rig:
    """A league with the memory and the counters around it."""

    def __init__(self, *, sampling: Sampling = "uniform", offered: int = 2, self_share: float = 0.5) -> None:
        self.recipe = LeagueRecipe(
            engine=TicTacToe, names=("random", "minimax"), players=(RandomPlayer, Minimax), shares=(0.3, 0.2),
            self_share=self_share, slots=3, offered=offered, sampling=sampling, snapshot_every=10, samples=False,
            epsilon=0.5,
        )  # fmt: skip
        arrays = {f.name: np.zeros(f.shape, f.dtype) for f in self.recipe.fields(PARAMETERS, 6)}
        self.vector = torch.zeros(PARAMETERS)
        self.tracker: Any = SimpleNamespace(episodes=0)
        weights: Any = SimpleNamespace(vector=self.vector)
        self.league = League(self.recipe, arrays, weights, self.tracker)  # type: ignore[arg-type]
        self.pool = self.league.pool

    def snapshots(self, count: int) -> None:
        for _ in range(count):
            self.vector += 1
            self.tracker.episodes += 10
            self.league.update(1.0)


def test_before_the_first_snapshot_self_means_random() -> None:
    rig = Rig()
    np.testing.assert_allclose(rig.pool.odds, [0.8, 0.2, 0, 0, 0])
    assert (rig.pool.born == EMPTY).all()


def test_a_snapshot_is_taken_when_it_is_due_and_replaces_the_oldest() -> None:
    rig = Rig()
    rig.tracker.episodes = 9
    rig.league.update(0.8)
    assert rig.league.stats()["snapshots"] == 0
    assert rig.pool.next_epsilon[0] == pytest.approx(0.4)
    rig.snapshots(5)
    assert rig.pool.born.tolist() == [3, 4, 2]
    assert rig.pool.weights[:, 0].tolist() == [4.0, 5.0, 3.0]
    # Only the newest two are offered.
    np.testing.assert_allclose(rig.pool.odds, [0.3, 0.2, 0.25, 0.25, 0.0])


def test_sampling_recent_prefers_newer_snapshots() -> None:
    rig = Rig(sampling="recent", offered=3)
    rig.snapshots(3)
    newest = 0.5 / (1 + RECENT + RECENT**2)
    np.testing.assert_allclose(rig.pool.odds[2:], [newest * RECENT**2, newest * RECENT, newest])


def test_sampling_hardest_prefers_snapshots_that_beat_the_learner() -> None:
    rig = Rig(sampling="hardest", offered=3)
    rig.snapshots(3)
    rig.pool.results[0, 2, WIN] += 50
    rig.pool.results[1, 3, LOSS] += 50
    rig.league.update(0.0)
    easy, hard, unknown = rig.pool.odds[2:]
    assert hard > unknown > easy > 0
    assert rig.pool.odds.sum() == pytest.approx(1.0)


def test_ratings_follow_results_and_stay_bounded() -> None:
    rig = Rig(self_share=0.0)
    for _ in range(400):
        rig.pool.results[0, 0] += [1, 0, 9]  # nine of ten against random
        rig.pool.results[0, 1, LOSS] += 5
        rig.league.update(0.0)
    stats = rig.league.stats()
    assert stats["win_rate_random"] == pytest.approx(0.9, abs=0.01)
    assert stats["win_rate_minimax"] == 0.0
    # Nine of ten is 382 points.
    assert stats["elo"] == pytest.approx(1000 + 382, abs=2)


def test_a_snapshot_keeps_the_rating_it_was_stored_with() -> None:
    rig = Rig(offered=3)
    for _ in range(300):
        rig.pool.results[0, 0] += [1, 0, 9]
        rig.league.update(0.0)
    rig.snapshots(1)
    born = rig.league._elos[2]
    assert born == pytest.approx(1382, abs=5)
    for _ in range(300):
        rig.pool.results[0, 0] += [1, 0, 9]
        rig.pool.results[1, 2] += [20, 0, 80]  # four of five against itself as it was: 241 points more
        rig.league.update(0.0)
    assert rig.league._elos[2] == born
    # Still one in ten is lost to random: the truth lies in between, nearer to where there were more games.
    assert born + 120 < rig.league.elo < born + 241


def test_a_loaded_league_continues_like_the_original() -> None:
    rig, other = Rig(sampling="hardest"), Rig(sampling="hardest")
    rig.snapshots(4)
    rig.pool.results[2, 3, WIN] += 4
    rig.league.update(0.3)
    other.league.load({key: value.copy() for key, value in rig.league.state().items()})
    other.tracker.episodes = rig.tracker.episodes
    for one in (rig, other):
        one.pool.results[1, 2, LOSS] += 3
        one.league.update(0.2)
    assert rig.league.stats() == other.league.stats()
    np.testing.assert_array_equal(rig.pool.odds, other.pool.odds)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_self_play_works_for_every_algorithm(algo: str) -> None:
    settings: dict[str, Any] = {
        "algo": algo, "env": "paceline/ConnectFour-v0", "opponents": {"random": 0.3, "self": 0.7}, "snapshot_every": 20,
        "n_envs": 8, "group_size": 4, "num_workers": 2, "total_timesteps": 1500, "n_eval_episodes": 0, "quiet": True,
        "n_steps": 16,
    }  # fmt: skip
    with Run(TrainConfig.from_flat(**settings)) as run:
        summary = run.go()
        stats = inside(run).learner._league.stats()
    assert summary.finished
    assert stats["snapshots"] >= 3
    assert 0 <= stats["win_rate_self"] <= 1


class Powered(gym.Wrapper[Any, Any, Any, Any]):
    """Has something that is called an engine, as many envs do."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        env.unwrapped.engine = "V8"  # type: ignore[attr-defined]


class Tripled(gym.RewardWrapper[Any, Any]):
    """Changes what a game pays."""

    def reward(self, reward: Any) -> float:
        return 3.0 * float(reward)


@pytest.mark.parametrize(
    ("env", "paid", "met"),
    [
        (lambda: Powered(gym.make("CartPole-v1")), None, None),
        (lambda: Tripled(GameEnv("tic_tac_toe")), 3.0, None),
        (lambda: GameEnv("tic_tac_toe", opponent="minimax"), 1.0, ("minimax", "random")),
        ("paceline/TicTacToe-v0", 1.0, ("random",)),
    ],
)
def test_only_unwrapped_games_have_a_league(env: Any, paid: float | None, met: tuple[str, ...] | None) -> None:
    settings = {"algo": "ppo", "env": env, "n_envs": 4, "n_steps": 64, "num_workers": 0, "total_timesteps": 256}
    with Run(TrainConfig.from_flat(**settings, quiet=True, n_eval_episodes=0)) as run:
        league = run.training.plan.base.league
        assert (None if league is None else league.names) == met
        run.go()
        returns = np.abs(inside(run).rollouts.last.finished.returns)
    if paid is not None:
        assert set(returns.tolist()) <= {0.0, paid}


def test_a_pettingzoo_game_is_trained() -> None:
    """A game is whatever has the protocol: here PettingZoo's, which is stepped board by board."""
    game = partial(PettingZooGame, partial(aec_env, "paceline/TicTacToe-v0"))
    own: dict[str, Any] = {
        "n_envs": 4, "group_size": 2, "n_steps": 8, "n_eval_episodes": 2, "opponents": {"random": 0.5, "self": 0.5},
    }  # fmt: skip
    with PPO(partial(GameEnv, game), num_workers=2, snapshot_every=5, **own) as agent:
        agent.learn(200)
        assert agent.summary is not None
        parallel = agent.summary
    with PPO(partial(GameEnv, game), num_workers=0, snapshot_every=5, **own) as agent:
        agent.learn(200)
        assert agent.summary is not None
        assert agent.summary.weights_sha256 == parallel.weights_sha256
    assert parallel.episodes > 20
    assert parallel.final_eval is not None
