"""DQN from end to end: schedules, pace, the Python face, and settings that do not fit."""

from __future__ import annotations

import csv
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.inside import inside

from paceline import DQN, PPO
from paceline.config.algorithms import ALGORITHMS
from paceline.config.train_config import TrainConfig
from paceline.domains.games.env import GameEnv
from paceline.errors import ConfigError
from paceline.integrations.pettingzoo import PettingZooGame, aec_env
from paceline.train.build import build
from paceline.train.pacing import Limiter
from paceline.train.replay_stream import ReplayStream
from paceline.train.run import Run, open_folder

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


@pytest.mark.parametrize("workers", [0, 2])
def test_async_keeps_samples_per_insert_within_its_tolerance(workers: int, tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "num_workers": workers, "prioritized": True, "quiet": True, "total_timesteps": 4000,
    }  # fmt: skip
    with Run(TrainConfig.from_flat(**settings)) as run:
        rollouts, learner, ahead = inside(run).rollouts, inside(run).learner, []
        assert isinstance(rollouts, ReplayStream)
        limiter: Limiter = rollouts._limiter
        release = rollouts.release

        def watched() -> None:
            ahead.append(limiter.ahead(run.training.tracker.steps, learner.samples))
            release()

        rollouts.release = watched  # type: ignore[method-assign]
        summary = run.go()
        assert summary.steps >= 4000
        assert max(map(abs, ahead)) <= limiter.max_ahead
        ratio = learner.samples / (summary.steps - settings["learning_starts"])
        assert abs(ratio - 2.0) <= limiter.max_ahead / (summary.steps - settings["learning_starts"])


def test_no_number_of_workers_means_that_one_is_chosen() -> None:
    assert DQN("CartPole-v1", num_workers=None, episodes_per_batch=4).config.num_workers == "auto"


def test_what_dqn_says_of_itself_is_in_the_record(tmp_path: Path) -> None:
    with DQN("CartPole-v1", num_workers=0, output_dir=tmp_path / "run", seed=1, **SMALL) as agent:
        agent.learn(n_episodes=40)
        assert agent.summary is not None
        assert agent.summary.episodes >= 40
    with (tmp_path / "run" / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["train/epsilon"]) == 1.0
    last = rows[-1]
    assert float(last["train/epsilon"]) < 1.0
    assert float(last["train/buffer_size"]) > 100
    assert float(last["train/n_updates"]) > 0
    assert float(last["train/loss"]) >= 0


def test_a_league_says_who_was_met_and_how_that_went(tmp_path: Path) -> None:
    with DQN(
        "paceline/TicTacToe-v0", num_workers=0, output_dir=tmp_path / "run", opponents={"random": 0.5, "self": 0.5},
        snapshot_every=50, **SMALL,
    ) as agent:  # fmt: skip
        agent.learn(n_episodes=300)
    with (tmp_path / "run" / "progress.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["train/snapshots"]) >= 5
    assert 0 <= float(last["train/win_rate_random"]) <= 1
    assert 0 <= float(last["train/win_rate_self"]) <= 1
    assert np.isfinite(float(last["train/elo"]))


def played(env: gym.Env[Any, Any], agent: DQN, seed: int) -> list[tuple[Any, ...]]:
    obs, _ = env.reset(seed=seed)
    transitions = []
    while True:
        action = agent.predict(obs)
        after, reward, terminated, truncated, _ = env.step(action)
        transitions.append((obs, action, reward, after, terminated))
        obs = after
        if terminated or truncated:
            return transitions


def test_people_with_their_own_collectors_bring_steps_and_take_weights() -> None:
    env = gym.make("CartPole-v1")
    with DQN("CartPole-v1", num_workers=0, n_envs=4, group_size=4, batch_size=16, n_eval_episodes=0) as agent:
        with pytest.raises(ConfigError, match="replay buffer is empty"):
            agent.update()
        before = agent.get_weights()
        total = 0
        for seed in range(5):
            steps = played(env, agent, seed)
            agent.add_trajectory(steps)
            total += len(steps)
        replay = inside(agent._started()).rollouts._ingest.replay
        valid = [int(replay.valid(np.arange(row * 4, row * 4 + 4)).sum()) for row in range(int(replay.head[0]))]
        assert sum(valid) == total
        stats = agent.update(20)
        assert stats["n_updates"] == 20
        after = agent.get_weights()
        assert before.shape == after.shape
        assert not np.array_equal(before, after)
        with DQN("CartPole-v1", num_workers=0, n_envs=4) as actor:
            actor.set_weights(after)
            obs = np.array([0.1, 0.2, -0.1, 0.0], np.float32)
            assert actor.predict(obs) == agent.predict(obs)
            with pytest.raises(ConfigError, match="must be a vector of"):
                actor.set_weights(after[:-1])
        agent.learn(200)  # and it goes on playing by itself
        assert agent.summary is not None
        assert agent.summary.steps >= 200
    env.close()


def test_groups_that_play_rows_together_go_on_together_after_foreign_steps() -> None:
    steps = [(np.full(4, t / 40), t % 2, 1.0, np.full(4, (t + 1) / 40), t == 39) for t in range(40)]
    hashes = []
    for workers in (0, 2):
        with DQN("CartPole-v1", num_workers=workers, n_steps=16, seed=3, **SMALL) as agent:
            agent.add_trajectory(steps)
            agent.learn(512)
            assert agent.summary is not None
            assert agent.summary.steps == 512
            replay = inside(agent._started()).rollouts._ingest.replay
            assert replay.head.tolist() == [10 + 64] * 2
            assert replay.valid(np.arange(74 * 8)).sum() == 40 + 512
            hashes.append(agent.get_weights().tobytes())
    assert hashes[0] == hashes[1]


def test_async_goes_on_with_other_workers_whose_groups_were_not_equally_far(tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "quiet": True, "total_timesteps": 800, "output_dir": tmp_path / "run",
    }  # fmt: skip
    config = TrainConfig.from_flat(**settings, num_workers=2)
    with Run(config, folder=open_folder(config)) as run:
        run.go()
        rollouts = inside(run).rollouts
        assert isinstance(rollouts, ReplayStream)
        state = rollouts.state()
    state["replay/head"][:] = [80, 64]  # group 1 was behind
    with closing(build(TrainConfig.from_flat(**{**settings, "output_dir": None}, num_workers=0))) as other:
        stream = other.rollouts
        assert isinstance(stream, ReplayStream)
        stream.load(state)
        replay = stream._ingest.replay
        assert replay.head.tolist() == [80, 80]
        while other.tracker.steps == 0:
            stream._receive(0.0)
        rows = int(replay.head[0]) - 80
        assert other.tracker.steps == rows * 8, "all that was taken in had been played"


def test_async_without_its_replay_begins_to_learn_as_at_the_beginning(tmp_path: Path) -> None:
    settings = {
        **SMALL, "algo": "dqn", "env": "CartPole-v1", "schedule": "async", "samples_per_insert": 2.0, "n_steps": 8,
        "quiet": True, "save_replay": False, "num_workers": 0, "total_timesteps": 800, "output_dir": tmp_path / "run",
    }  # fmt: skip
    config = TrainConfig.from_flat(**settings)
    with Run(config, folder=open_folder(config)) as run:
        run.go()
        state = inside(run).rollouts.state()
    with closing(build(TrainConfig.from_flat(**{**settings, "output_dir": None}))) as other:
        stream = other.rollouts
        assert isinstance(stream, ReplayStream)
        other.tracker.steps = 800
        stream.load(state)
        assert stream.stored == 0
        stream.next(0)
        assert stream.stored >= SMALL["learning_starts"]


@pytest.mark.parametrize("algo", ["dqn", "a3c"])
def test_schedules_go_on_where_they_were_before_anything_is_played(algo: str) -> None:
    config = TrainConfig.from_flat(algo=algo, env="CartPole-v1", n_envs=8, num_workers=0, quiet=True, n_eval_episodes=0)
    with Run(config) as run, Run(config) as other:
        progress = inside(run).learner._progress
        if algo == "dqn":
            inside(run).learner._progress = 0.9
        else:
            progress[:] = 0.9
        inside(other).learner.load(inside(run).learner.state())
        assert np.all(inside(other).learner._progress == 0.9)


def test_foreign_steps_are_learned_from_as_if_played_here() -> None:
    env = gym.make("CartPole-v1")
    with DQN("CartPole-v1", num_workers=0, n_envs=3, group_size=3, n_eval_episodes=0) as agent:
        steps = played(env, agent, 0)
        agent.add_trajectory(steps)
        replay = inside(agent._started()).rollouts._ingest.replay
        length = -(-len(steps) // 3)
        for at, (obs, action, reward, after, terminated) in enumerate(steps):
            column, row = divmod(at, length)
            found = replay.gather(np.array([row * 3 + column]))
            np.testing.assert_array_equal(found.obs["obs"][0], obs)
            assert (int(found.action[0]), float(found.reward[0])) == (action, reward)
            assert bool(found.discount[0] == 0) == terminated
            if not terminated:
                np.testing.assert_array_equal(found.next_obs["obs"][0], after)
    env.close()


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


def test_an_empty_replay_never_keeps_everybody_waiting() -> None:
    """Returns of 50 steps need 50 rows before there is anything to learn from, more than the limiter would allow."""
    with DQN(
        "CartPole-v1", num_workers=0, n_envs=8, schedule="async", multi_step=50, learning_starts=100, n_eval_episodes=0
    ) as agent:
        agent.learn(1000)
        assert agent.summary is not None
        assert agent.summary.steps >= 1000


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
def test_only_bare_games_are_played_by_the_thousand(env: Any, paid: float | None, met: tuple[str, ...] | None) -> None:
    settings = {"algo": "ppo", "env": env, "n_envs": 4, "n_steps": 64, "num_workers": 0, "total_timesteps": 256}
    with Run(TrainConfig.from_flat(**settings, quiet=True, n_eval_episodes=0)) as run:
        league = run.training.plan.base.league
        assert (None if league is None else league.names) == met
        run.go()
        returns = np.abs(inside(run).rollouts.last.finished.returns)
    if paid is not None:
        assert set(returns.tolist()) <= {0.0, paid}


def test_a_sample_is_the_best_action_but_for_what_is_explored() -> None:
    obs = np.array([0.1, 0.2, -0.1, 0.0], np.float32)
    sure, curious = (DQN("CartPole-v1", num_workers=0, epsilon_end=epsilon) for epsilon in (0.0, 1.0))
    best = sure.predict(obs)
    assert {sure.predict(obs, deterministic=False) for _ in range(50)} == {best}
    assert {curious.predict(obs, deterministic=False) for _ in range(50)} == {0, 1}
    assert {curious.predict(obs) for _ in range(50)} == {best}


def test_practice_without_play_leaves_exploration_as_it_was() -> None:
    with DQN("CartPole-v1", num_workers=0, **SMALL) as agent:
        agent.learn(1000)
        before = agent.update(1)["epsilon"]
        assert before < 0.2
        assert agent.update(3)["epsilon"] == before
        with pytest.raises(ConfigError, match="outside the action space"):
            agent.add_trajectory([(np.zeros(4), 2, 0.0, np.zeros(4), False)])


def test_foreign_actions_are_counted_as_the_env_counts_them_and_gaps_are_seen() -> None:
    with DQN(FromOne, num_workers=0, n_envs=1, group_size=1, n_eval_episodes=0, learning_starts=10) as agent:
        agent.add_trajectory(
            [(0.1, 1, 1.0, 0.2, False), (0.2, 2, 2.0, 0.3, False), (0.7, 1, 3.0, 0.8, False), (0.8, 2, 4.0, 0.9, True)]
        )
        replay = inside(agent._started()).rollouts._ingest.replay
        found = replay.gather(np.arange(4))
        assert found.action.tolist() == [0, 1, 0, 1]
        np.testing.assert_allclose(found.next_obs["obs"][:3, 0], [0.2, 0.3, 0.8])
        assert found.discount.tolist()[3] == 0


class FromOne(gym.Env[Any, Any]):
    """Actions are 1 and 2."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2, start=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, True, False, {}


def test_games_of_others_are_trained_too() -> None:
    """A game is whatever has the protocol: here PettingZoo's, which is stepped board by board."""
    game = partial(PettingZooGame, partial(aec_env, "paceline/TicTacToe-v0"))
    own = {"n_envs": 4, "group_size": 2, "n_steps": 8, "n_eval_episodes": 2, "opponents": {"random": 0.5, "self": 0.5}}
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


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"env": "Pendulum-v1"}, "needs Discrete actions"),
        ({"buffer_size": "many"}, "number of transitions, or bytes"),
        ({"buffer_size": "900000GB"}, "of memory are free"),
        ({"buffer_size": 150, "learning_starts": 150}, "less than n_steps=16 or learning_starts=150 require"),
        ({"buffer_size": 150, "learning_starts": 8, "n_steps": 32}, "less than n_steps=32"),
        ({"learning_steps_per_batch": 3, "samples_per_insert": 2}, "Give one of the two"),
        ({"schedule": "async", "learning_steps_per_batch": 3}, "no batches in async mode"),
        ({"normalize_obs": True}, "scaled by newer statistics"),
        ({"epsilon_end": 1.5}, "epsilon_end"),
        ({"opponents": {"self": 1.0}}, "is not a two-player game"),
        ({"env": "paceline/Ludo-v0", "opponents": {"minimax": 1.0}}, "no player 'minimax' of ludo"),
        ({"env": "paceline/Ludo-v0", "opponents": {"random": 0.0}}, "at least one share must be positive"),
        ({"n_epochs": 4}, "It is a setting of ppo"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        DQN(**{"env": "CartPole-v1", "num_workers": 0, **SMALL, **settings}).learn(1)


def test_a_saved_agent_is_loaded_and_another_algorithm_refuses_it(tmp_path: Path) -> None:
    with DQN("CartPole-v1", num_workers=0, **SMALL) as agent:
        agent.learn(300)
        agent.save(tmp_path / "agent")
    loaded = DQN.load(tmp_path / "agent")
    obs = np.array([0.1, 0.2, -0.1, 0.0], np.float32)
    assert loaded.predict(obs) == agent.predict(obs)
    with pytest.raises(Exception, match="dqn"):
        PPO.load(tmp_path / "agent")
