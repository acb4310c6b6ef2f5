"""Which statistics are shown, under which labels and in which order."""

from __future__ import annotations

from paceline.measure.record import TAGS
from paceline.measure.statistic import statistics, written

VALUES = {
    "train/epsilon": 0.0512,
    "train/win_rate_greedy": 0.055,
    "train/win_rate_self": 0.5,
    "rollout/env_reward_mean": -12.345,
    "train/loss": 1234.5,
    "train/elo": 1249.9,
    "rollout/success_rate": 1.0,
    "rollout/ep_rew_mean": 3.0,
    "train/learning_rate": 0.1,
}


def test_the_task_comes_first_and_every_number_has_its_form() -> None:
    assert written(VALUES, of_task=True) == [
        "success rate 100%",
        "Elo 1,250",
        "win rate against greedy 6%, self 50%",
        "env_reward -12.3",
    ]
    assert written(VALUES, of_task=False) == ["loss 1.23e+03", "epsilon 0.0512"]
    assert [one.of_task for one in statistics(VALUES).values()] == [True] * 5 + [False] * 2


def test_of_the_tags_of_every_run_few_are_shown() -> None:
    assert [one.label for one in statistics(TAGS).values()] == ["success rate", "loss", "explained variance"]
    assert statistics(()) == {}
