"""Every algorithm reaches its target within its budget of steps, with the settings in `configs/`.

Asynchronous runs differ each time, so a pass of a few seeds says little: `make learning-seeds` measures how many steps
24 seeds need, and each config states the result.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.learning.seeds import attempt, reached
from tests.learning.settings import LEARNING

from paceline import DQN, PPO

SEEDS = range(5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNING)
def test_reaches_its_target_within_its_budget(name: str, seed: int, tmp_path: Path) -> None:
    target = LEARNING[name]
    summary = attempt(target, seed, tmp_path / "run")
    assert reached(summary), f"mean return below {target.mean_return} after {summary.steps:,} steps"
    if summary.algo in ("impala", "appo"):
        assert summary.lag["max"] <= target.config.training.max_lag  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("agent_of", "steps"), [(PPO, 100_000), (DQN, 50_000)], ids=["ppo", "dqn"])
def test_the_defaults_solve_cartpole(agent_of: type[PPO | DQN], steps: int, seed: int) -> None:
    with agent_of("CartPole-v1", seed=seed, num_workers=0, n_eval_episodes=0) as agent:
        agent.learn(total_timesteps=steps)
        assert agent.evaluate(50).mean_reward >= 475.0
