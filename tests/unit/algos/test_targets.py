"""Advantages and value targets: V-trace on fresh data equals GAE's returns."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from paceline.algos.targets import GAETargets, VTraceTargets
from paceline.batch import Finals, Trajectory
from paceline.config.impala_settings import APPOConfig, ImpalaConfig
from paceline.nets.policy import build_policy
from paceline.ops.distributions import head_for
from paceline.ops.scores import score
from paceline.spec import EnvSpec

T, B = 6, 3
SPEC = EnvSpec.of(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))


@pytest.fixture
def policy() -> torch.nn.Module:
    return build_policy("mlp", SPEC, hidden_sizes=(16,), activation="tanh", seed=1)


def batch(policy: torch.nn.Module, *, older_by: float = 0.0) -> Trajectory:
    """Steps with a termination and a truncation, by a policy that is the same, or gave its actions other odds."""
    rng = np.random.default_rng(0)
    obs = torch.from_numpy(rng.normal(size=(T + 1, B, 4)).astype(np.float32))
    final = torch.from_numpy(rng.normal(size=(1, 4)).astype(np.float32))
    action = torch.from_numpy(rng.integers(3, size=(T, B)))
    with torch.no_grad():
        params, value = policy(obs.flatten(0, 1))
        final_value = policy(final)[1]
    scored = score(head_for(SPEC.action), params[: T * B].numpy(), action.flatten().numpy())
    terminated, truncated = torch.zeros(T, B, dtype=torch.bool), torch.zeros(T, B, dtype=torch.bool)
    terminated[2, 0], truncated[3, 1] = True, True
    return Trajectory(
        obs={"obs": obs},
        mask=None,
        action=action,
        reward=torch.from_numpy(rng.normal(size=(T, B)).astype(np.float32)),
        terminated=terminated,
        truncated=truncated,
        valid=torch.ones(T, B, dtype=torch.bool),
        log_prob=torch.from_numpy(scored.log_prob).reshape(T, B) + older_by,
        value=value.reshape(T + 1, B),
        finals=Finals(torch.tensor([3]), torch.tensor([1]), {"obs": final}, final_value),
        version=0,
    )


@pytest.mark.parametrize("config", [ImpalaConfig(vtrace_lambda=0.9), APPOConfig(vtrace_lambda=0.9)])
def test_without_lag_vtrace_targets_equal_gae_returns(config: ImpalaConfig, policy: torch.nn.Module) -> None:
    data = batch(policy)
    head = head_for(SPEC.action)
    by_vtrace = VTraceTargets(config, policy, head, SPEC, None)(data, data.reward)
    by_gae = GAETargets(0.99, 0.9)(data, data.reward)
    torch.testing.assert_close(by_vtrace.returns, by_gae.returns, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_vtrace.log_prob, data.log_prob, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_vtrace.value, data.value[:-1], rtol=1e-4, atol=1e-5)


def test_impala_puts_the_importance_weight_in_the_advantage_appo_in_the_ratio(policy: torch.nn.Module) -> None:
    data, head = batch(policy, older_by=0.5), head_for(SPEC.action)  # pi / mu is exp(-0.5) everywhere
    impala = VTraceTargets(ImpalaConfig(), policy, head, SPEC, None)(data, data.reward)
    appo = VTraceTargets(APPOConfig(), policy, head, SPEC, None)(data, data.reward)
    torch.testing.assert_close(impala.advantage, appo.advantage * np.exp(-0.5), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(appo.log_prob, data.log_prob)
    torch.testing.assert_close(impala.log_prob, data.log_prob - 0.5, rtol=1e-4, atol=1e-5)
