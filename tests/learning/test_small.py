"""Games small enough to know the answer, learned in seconds; and games in which there is nothing to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.games import Corridor
from tests.inside import inside

from paceline import PPO
from paceline.config.train_config import TrainConfig
from paceline.train.run import Run

FAST: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 1e-2,
    "hidden_sizes": (32,),
    "normalize_reward": False,
    "num_workers": 0,
    "n_eval_episodes": 0,
    "quiet": True,
}


def learned(env: str, steps: int, **settings: Any) -> PPO:
    agent = PPO(env, **{**FAST, **settings})
    with agent:
        agent.learn(steps)
    return agent


@pytest.mark.parametrize("workers", [0, 2])
def test_a_contextual_bandit_is_solved(workers: int) -> None:
    agent = learned("tests.games:Bandit", 4096, num_workers=workers, seed=1)
    assert agent.evaluate(50).mean_reward == 1.0
    assert agent.predict(np.arange(3))[0].tolist() == [0, 1, 2]


def test_the_way_out_of_a_corridor_is_found() -> None:
    agent = learned("tests.games:Corridor", 8192, seed=2)
    result = agent.evaluate(5)
    assert result.lengths == (5,) * 5
    assert result.mean_reward == pytest.approx(Corridor.BEST)


def test_pictures_are_told_apart() -> None:
    agent = learned(
        "tests.games:Dots", 1024, n_envs=8, n_steps=16, batch_size=64, learning_rate=2e-3, policy="nature_cnn", seed=3
    )
    assert agent.evaluate(10).mean_reward == 7.0


def mean_returns(env: str, steps: int, **settings: Any) -> tuple[list[float], list[float]]:
    """Mean return and length of the last 100 episodes, after each iteration."""
    config = TrainConfig.from_flat(env=env, **{**FAST, **settings}, total_timesteps=steps)
    with Run(config) as run:
        returns, lengths = [], []
        rollouts, learner, tracker = inside(run).rollouts, inside(run).learner, run.training.tracker
        while tracker.steps < steps:
            learner.update(rollouts.next(learner.version), 0.0)
            if tracker.mean_return is not None and tracker.mean_length is not None:
                returns.append(tracker.mean_return)
                lengths.append(tracker.mean_length)
    return returns, lengths


def test_where_there_is_nothing_to_learn_nothing_seems_to_be_learned() -> None:
    """Envs that were never reset, or statistics over the wrong borders, would show a trend here."""
    returns, lengths = mean_returns("tests.games:Coin", 8192, seed=4)
    assert set(lengths) == {10.0}
    # Ten fair coins: mean 5, and the mean of 100 games lies within 0.16 of it, give or take.
    assert max(abs(value - 5.0) for value in returns[1:]) < 0.8
    third = len(returns) // 3
    assert abs(np.mean(returns[-third:]) - np.mean(returns[1:third])) < 0.4


def test_a_policy_that_does_not_move_does_not_improve() -> None:
    returns, _ = mean_returns("tests.games:Corridor", 8192, seed=5, learning_rate=1e-12)
    third = len(returns) // 3
    early, late = np.mean(returns[1:third]), np.mean(returns[-third:])
    # The first episodes to end are the short ones, so it begins a little better than it goes on.
    assert late - early < 0.2
    assert -2.0 < late < -0.8, "a random walk out takes about 25 steps, where it gets out in 30"


@pytest.mark.parametrize("terminates", [False, True])
def test_the_value_of_an_endless_game_and_of_one_that_ends(terminates: bool) -> None:
    """1 a step at a discount of 0.9 is worth 10 for ever, which a truncation must not hide.

    Ten steps that all look alike have one value, at which the advantages of the ten add up to nothing.
    """
    config = TrainConfig.from_flat(
        env="tests.games:Constant",
        env_kwargs={"terminates": terminates},
        **{**FAST, "gamma": 0.9, "n_epochs": 8},
        total_timesteps=256,
    )
    with Run(config) as run:
        rollouts, learner = inside(run).rollouts, inside(run).learner
        for _ in range(30):
            batch = rollouts.next(learner.version)
            learner.update(batch, 0.0)
        value = float(batch.value.mean())
    fade = 0.9 * 0.95
    last = sum(fade ** (left - 1) for left in range(1, 11))  # of the one step that nothing follows
    others = sum(fade**k for left in range(1, 11) for k in range(left - 1))
    expected = (others + last) / (others * (1 - 0.9) + last) if terminates else 10.0
    assert value == pytest.approx(expected, rel=0.1)
