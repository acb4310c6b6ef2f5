"""`tune` measures every setting in every round and refuses configs that it cannot measure."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.insight.learner_settings import LearnerSetting
from paceline.insight.tune import tune


def small(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=16, num_workers=0, **settings)


def test_every_setting_has_a_speed_for_every_round() -> None:
    said: list[str] = []
    tuned = tune(small(n_epochs=1), rounds=2, window_s=0.01, tick=said.append)
    speeds = tuned.learner.updates_per_s
    assert len(speeds) > 1
    assert all(len(rates) == 2 for rates in speeds.values())
    assert tuned.learner.current == LearnerSetting(grad_shards=1, learner_threads=1)
    assert (tuned.num_workers, 0 < tuned.learn_share < 1) == (0, True)
    assert said == ["starting", *(f"round {i} of 2, {len(speeds)} settings" for i in (1, 2))]
    content = tuned.json()
    assert content["num_workers"] == 0
    assert content["learner"]["learn_share"] == tuned.learn_share


@pytest.mark.parametrize(("settings", "reason"), [({"pipeline": True}, "with pipeline"), ({"algo": "dqn"}, "dqn")])
def test_configs_that_cannot_be_measured_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"tune: .*{reason}.*Keep the default grad_shards"):
        tune(small(**settings), rounds=1, window_s=0.01)
