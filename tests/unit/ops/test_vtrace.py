"""V-trace against its definition and its on-policy special case."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.ops.vtrace import vtrace

Array = NDArray[Any]


def by_definition(inputs: tuple[Array, ...], *settings: float) -> tuple[Array, Array]:
    """Equation 1 of the paper as a double sum, and the advantage of its section 4.2, step by step in float64."""
    log_ratio, reward, value, after, terminated, ended = inputs
    gamma, lam, rho_clip, c_clip = settings
    steps, envs = reward.shape
    vs, advantage = np.zeros((steps, envs)), np.zeros((steps, envs))

    def gamma_v(t: int, env: int) -> float:
        return 0.0 if terminated[t, env] else gamma * float(after[t, env])

    def rho(t: int, env: int) -> float:
        return min(rho_clip, math.exp(log_ratio[t, env]))

    for env in range(envs):
        for start in range(steps):
            total, product = float(value[start, env]), 1.0
            for t in range(start, steps):
                delta = rho(t, env) * (float(reward[t, env]) + gamma_v(t, env) - float(value[t, env]))
                total += gamma ** (t - start) * product * delta
                product *= lam * min(c_clip, math.exp(log_ratio[t, env]))
                if ended[t, env]:
                    break
            vs[start, env] = total
        for t in range(steps):
            last = t == steps - 1 or ended[t, env]
            follows = gamma_v(t, env) if last else gamma * vs[t + 1, env]
            advantage[t, env] = rho(t, env) * (float(reward[t, env]) + follows - float(value[t, env]))
    return vs, advantage


def batch(steps: int, envs: int, seed: int, p_end: float, spread: float) -> tuple[Array, ...]:
    draw = np.random.default_rng(seed)
    log_ratio, reward, value, after = draw.normal(size=(4, steps, envs)).astype(np.float32)
    terminated = draw.random((steps, envs)) < p_end / 2
    ended = terminated | (draw.random((steps, envs)) < p_end / 2)
    # Within an episode the value after a step is the value before the next one.
    after[:-1] = np.where(ended[:-1], after[:-1], value[1:])
    return log_ratio * np.float32(spread), reward, value, after, terminated, ended


@settings(max_examples=40, deadline=None)
@given(
    steps=st.integers(1, 33),
    envs=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    p_end=st.sampled_from([0.0, 0.2, 1.0]),
    spread=st.sampled_from([0.0, 0.3, 2.0]),
    gamma=st.floats(0.0, 1.0),
    lam=st.floats(0.0, 1.0),
    clips=st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 1.0)),
)
def test_vtrace_is_its_definition(
    steps: int,
    envs: int,
    seed: int,
    p_end: float,
    spread: float,
    gamma: float,
    lam: float,
    clips: tuple[float, float],
) -> None:
    inputs = batch(steps, envs, seed, p_end, spread)
    found = vtrace(*inputs, gamma=gamma, lam=lam, rho_clip=clips[0], c_clip=clips[1])
    vs, advantage = by_definition(inputs, gamma, lam, *clips)
    np.testing.assert_allclose(found.vs, vs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.rho * found.advantage, advantage, rtol=1e-3, atol=1e-3)


def test_without_lag_it_is_the_n_step_return() -> None:
    _, reward, value, after, _, _ = batch(5, 3, 0, 0.0, 0.0)
    none = np.zeros_like(reward, dtype=bool)
    found = vtrace(np.zeros_like(reward), reward, value, after, none, none, gamma=0.9)
    expected = after[-1].astype(np.float64)
    for t in reversed(range(5)):
        expected = reward[t] + 0.9 * expected
        np.testing.assert_allclose(found.vs[t], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.advantage[t], expected - value[t], rtol=1e-4, atol=1e-4)
    assert (found.rho == 1).all()


def test_truncation_bootstraps_and_termination_does_not() -> None:
    one = np.ones((1, 1), np.float32)
    yes, no = np.array([[True]]), np.array([[False]])
    truncated = vtrace(0 * one, one, 0 * one, 5 * one, no, yes, gamma=0.5)
    terminated = vtrace(0 * one, one, 0 * one, 5 * one, yes, yes, gamma=0.5)
    assert truncated.vs.item() == 3.5
    assert terminated.vs.item() == 1.0


def test_inputs_are_not_modified() -> None:
    inputs = batch(9, 2, 3, 0.2, 1.0)
    before = [array.copy() for array in inputs]
    vtrace(*inputs, gamma=0.99, lam=0.95)
    assert all(np.array_equal(a, b) for a, b in zip(before, inputs, strict=True))
