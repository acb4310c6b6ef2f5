"""The standard deviation of the actions, in the statistics of every algorithm that has a Gaussian policy."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.unit.algos.learners import batch
from torch import Tensor, nn

from paceline.algos.action_std import action_std
from paceline.config.train_config import TrainConfig
from paceline.nets.flat import bind
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import LOG_STD_MAX
from paceline.spec import PLAIN, EnvSpec
from paceline.train.build import build

CONTINUOUS = EnvSpec.of(spaces.Box(-9.0, 9.0, (2,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32))


class Spread(nn.Module):
    """Means are 5, log standard deviations are the observation."""

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat((torch.full_like(obs, 5.0), obs), 1), obs.sum(1)


def test_it_is_the_mean_over_actions_and_observations() -> None:
    one = batch()
    obs = torch.tensor([[math.log(0.1), math.log(0.3)], [math.log(0.5), 99.0]])
    one.obs[PLAIN] = torch.stack([obs, obs + 1.0, obs + 1.0])
    spread = action_std(Spread(), CONTINUOUS, None)
    assert spread is not None
    assert spread(one) == pytest.approx((0.1 + 0.3 + 0.5 + math.exp(LOG_STD_MAX)) / 4)
    normaliser = ObsNormaliser(CONTINUOUS)
    normaliser.update({PLAIN: np.array([[1.0, 3.0], [3.0, 5.0]])})
    expected = normaliser.apply_torch({PLAIN: obs})[PLAIN].clamp(max=LOG_STD_MAX).exp().mean()
    scaled = action_std(Spread(), CONTINUOUS, normaliser)
    assert scaled is not None
    assert scaled(one) == pytest.approx(float(expected))


@pytest.mark.parametrize(("algo", "clip_range"), [("ppo", 0.2), ("appo", 0.2), ("impala", None), ("a3c", None)])
def test_every_algorithm_reports_it_with_its_clip_range(algo: str, clip_range: float | None) -> None:
    small: dict[str, Any] = {"n_envs": 4, "group_size": 2, "n_steps": 8, "hidden_sizes": (8,), "num_workers": 0}
    for env, continuous in (("tests.games:Drift", True), ("CartPole-v1", False)):
        with closing(build(TrainConfig.from_flat(algo=algo, env=env, learning_rate=0.1, **small))) as training:
            training.rollouts.reset()
            rollout = training.driver.collector.next(training.learner.version)
            stats = training.learner.update(rollout, 0.0)  # type: ignore[arg-type]
            assert stats.get("clip_range") == clip_range
            assert ("std" in stats) == continuous
            if continuous:
                policy = training.plan.base.policy.build(training.spec)
                bind(policy, training.weights.vector)
                now = policy.get_parameter("log_std").exp().mean()
                assert now != 1.0, "the weights after the update"
                assert stats["std"] == pytest.approx(float(now))
            del rollout
