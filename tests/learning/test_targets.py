"""PPO learns what it has to, on every seed, with the settings in `configs/`."""

from __future__ import annotations

import pytest
from tests.learning.settings import LEARNING

from paceline.measure.episodes import WINDOW
from paceline.train.build import build

SEEDS = range(5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNING)
def test_reaches_its_target_within_its_budget(name: str, seed: int) -> None:
    target = LEARNING[name]
    steps = target.config.run.budget_steps
    assert steps is not None
    training = build(target.config.merge(seed=seed))
    tracker, best = training.tracker, float("-inf")
    try:
        training.rollouts.reset()
        # Never a rollout beyond the budget.
        while tracker.steps + target.config.batch_steps <= steps and best < target.mean_return:
            batch = training.rollouts.collect(training.learner.version)
            training.learner.update(batch, tracker.steps / steps)
            if tracker.episodes >= WINDOW and tracker.mean_return is not None:
                best = max(best, tracker.mean_return)
    finally:
        training.close()
    assert best >= target.mean_return, f"best mean of {WINDOW} episodes in {tracker.steps:,} steps: {best:.1f}"
