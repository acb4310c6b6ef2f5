"""External transitions, and updates without collecting."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.inside import inside

from paceline import DQN
from paceline.errors import ConfigError

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


def played(env: gym.Env[Any, Any], agent: DQN, seed: int) -> list[tuple[Any, ...]]:
    obs, _ = env.reset(seed=seed)
    transitions = []
    while True:
        action, _ = agent.predict(obs)
        after, reward, terminated, truncated, _ = env.step(action)
        transitions.append((obs, action, reward, after, terminated))
        obs = after
        if terminated or truncated:
            return transitions


def test_external_transitions_are_stored_and_learned_from() -> None:
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


def test_external_transitions_are_sampled_like_collected_ones() -> None:
    env = gym.make("CartPole-v1")
    with DQN("CartPole-v1", num_workers=0, n_envs=3, group_size=3, n_eval_episodes=0, multi_step=1) as agent:
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


def test_updates_without_collecting_do_not_change_epsilon() -> None:
    with DQN("CartPole-v1", num_workers=0, **SMALL) as agent:
        agent.learn(1000)
        before = agent.update(1)["epsilon"]
        assert before < 0.2
        assert agent.update(3)["epsilon"] == before
        with pytest.raises(ConfigError, match="outside the action space"):
            agent.add_trajectory([(np.zeros(4), 2, 0.0, np.zeros(4), False)])


class FromOne(gym.Env[Any, Any]):
    """Actions are 1 and 2."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2, start=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, True, False, {}


def test_external_actions_start_where_the_action_space_starts_and_gaps_end_episodes() -> None:
    alone: dict[str, Any] = {"n_envs": 1, "group_size": 1, "multi_step": 1, "learning_starts": 10}
    with DQN(FromOne, num_workers=0, n_eval_episodes=0, **alone) as agent:
        agent.add_trajectory(
            [(0.1, 1, 1.0, 0.2, False), (0.2, 2, 2.0, 0.3, False), (0.7, 1, 3.0, 0.8, False), (0.8, 2, 4.0, 0.9, True)]
        )
        replay = inside(agent._started()).rollouts._ingest.replay
        found = replay.gather(np.arange(4))
        assert found.action.tolist() == [0, 1, 0, 1]
        np.testing.assert_allclose(found.next_obs["obs"][:3, 0], [0.2, 0.3, 0.8])
        assert found.discount.tolist()[3] == 0
