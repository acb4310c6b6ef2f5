"""GAE against its definition, including episode ends and bootstrapping."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.ops.returns import explained_variance, gae, next_values


def gae_by_definition(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Each advantage as its own sum of discounted errors up to the end of its episode."""
    steps, envs = reward.shape
    result = np.zeros((steps, envs))
    for env in range(envs):
        for start in range(steps):
            weight = 1.0
            for t in range(start, steps):
                after = 0.0 if terminated[t, env] else float(next_value[t, env])
                result[start, env] += weight * (float(reward[t, env]) + gamma * after - float(value[t, env]))
                weight *= gamma * lam
                if ended[t, env]:
                    break
    return result


def batch(steps: int, envs: int, seed: int, p_end: float = 0.2) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    reward, value, after = torch.randn(3, steps, envs, generator=draw)
    terminated = torch.rand(steps, envs, generator=draw) < p_end / 2
    return reward, value, after, terminated, terminated | (torch.rand(steps, envs, generator=draw) < p_end / 2)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.integers(1, 33),
    envs=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    p_end=st.sampled_from([0.0, 0.2, 1.0]),
    gamma=st.floats(0.0, 1.0),
    lam=st.floats(0.0, 1.0),
)
def test_gae_is_its_definition(steps: int, envs: int, seed: int, p_end: float, gamma: float, lam: float) -> None:
    inputs = batch(steps, envs, seed, p_end)
    advantage, returns = gae(*inputs, gamma=gamma, lam=lam)
    np.testing.assert_allclose(advantage, gae_by_definition(*inputs, gamma, lam), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(returns, advantage + inputs[1])


def test_inputs_are_not_modified() -> None:
    inputs = batch(16, 3, 0)
    before = [t.clone() for t in inputs]
    gae(*inputs, gamma=0.99, lam=0.95)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_nothing_leaks_over_an_episode_end() -> None:
    reward, value, after, terminated, ended = batch(20, 2, 1, p_end=0.0)
    ended[9, 0] = True
    plain, _ = gae(reward, value, after, terminated, ended, gamma=0.99, lam=0.95)
    reward[10:, 0] += 1000.0
    changed, _ = gae(reward, value, after, terminated, ended, gamma=0.99, lam=0.95)
    assert torch.equal(plain[:10, 0], changed[:10, 0])
    assert (plain[10:, 0] != changed[10:, 0]).all()


def test_envs_are_independent_columns() -> None:
    inputs = batch(24, 5, 2)
    together, _ = gae(*inputs, gamma=0.99, lam=0.95)
    for env in range(5):
        alone, _ = gae(*(t[:, env : env + 1].contiguous() for t in inputs), gamma=0.99, lam=0.95)
        assert torch.equal(alone[:, 0], together[:, env])


def test_truncation_bootstraps_and_termination_does_not() -> None:
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    yes, no = one.bool(), zero.bool()
    truncated, _ = gae(one, zero, 10 * one, no, yes, gamma=0.5, lam=1.0)
    terminated, _ = gae(one, zero, 10 * one, yes, yes, gamma=0.5, lam=1.0)
    assert truncated.item() == 6.0
    assert terminated.item() == 1.0


def test_bootstrap_comes_from_the_last_real_observation() -> None:
    value = torch.arange(8.0).reshape(4, 2)
    after = next_values(value, torch.tensor([1]), torch.tensor([0]), torch.tensor([99.0]))
    assert after.tolist() == [[2.0, 3.0], [99.0, 5.0], [6.0, 7.0]]
    assert value[2, 0] == 4.0, "the values themselves must not change"


def test_lambda_one_is_the_discounted_return() -> None:
    reward = torch.tensor([[1.0], [2.0], [4.0]])
    value = torch.tensor([[0.3], [0.5], [0.7], [8.0]])
    no = torch.zeros(3, 1, dtype=torch.bool)
    _, returns = gae(reward, value[:-1], value[1:], no, no, gamma=0.5, lam=1.0)
    torch.testing.assert_close(returns[:, 0], torch.tensor([1 + 1 + 1 + 1.0, 2 + 2 + 2.0, 4 + 4.0]))


def test_explained_variance() -> None:
    returns = np.array([1.0, 2.0, 3.0], np.float32)
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(3, 2.0, np.float32), returns) == 0.0
    assert explained_variance(-returns, returns) < 0
    assert math.isnan(explained_variance(returns, np.ones(3, np.float32)))
