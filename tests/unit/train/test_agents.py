"""The classes of the Python API, one per algorithm."""

from __future__ import annotations

import paceline
from paceline import DQN
from paceline.config.algorithms import ALGORITHMS
from paceline.train import agents
from paceline.train.agent import Agent


def test_every_algorithm_has_a_class() -> None:
    classes = [cls for cls in vars(agents).values() if isinstance(cls, type) and issubclass(cls, Agent)]
    assert sorted(cls.algo for cls in classes if cls is not Agent) == sorted(ALGORITHMS)
    assert all(cls.__name__ in paceline.__all__ for cls in classes if cls is not Agent)


def test_n_episodes_is_another_name_of_total_episodes() -> None:
    with DQN("CartPole-v1", num_workers=0, n_envs=4, n_eval_episodes=0) as agent:
        agent.learn(n_episodes=3)
        assert agent.summary is not None
        assert agent.summary.stop_reason == "total_episodes"
