"""Epsilon-greedy action selection among legal actions."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.ops.exploring import EpsilonGreedy, uniform_legal


def test_without_epsilon_it_is_the_best_legal_one() -> None:
    head = EpsilonGreedy(3)
    params = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], np.float32)
    mask = np.array([[True, True, False], [False, True, True]])
    noise = head.draw_noise(np.random.default_rng(0), (2,))
    assert noise.shape == (2, 2)
    assert head.choose(params, noise).tolist() == [2, 0]
    assert head.choose(params, noise, mask).tolist() == [1, 1]


def test_epsilon_is_the_probability_of_exploring_per_row() -> None:
    epsilon = np.array([0.0, 0.5, 1.0], np.float32).repeat(20_000)
    head = EpsilonGreedy(4, epsilon)
    params = np.tile(np.array([[0.0, 9.0, 0.0, 0.0]], np.float32), (60_000, 1))
    mask = np.tile([True, True, True, False], (60_000, 1))
    noise = head.draw_noise(np.random.default_rng(0), (60_000,))
    action = head.choose(params, noise, mask).reshape(3, 20_000)
    assert (action[0] == 1).all()
    assert np.mean(action[1] == 1) == pytest.approx(0.5 + 0.5 / 3, abs=0.01)
    assert np.bincount(action[2], minlength=4) / 20_000 == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=0.01)


def test_any_legal_action_is_equally_likely_and_the_edges_are_legal() -> None:
    mask = np.array([[False, True, False, True, True]])
    uniform = np.linspace(0, 1, 3001, dtype=np.float32)[:-1]
    drawn = uniform_legal(uniform, 5, mask.repeat(3000, 0))
    assert np.bincount(drawn, minlength=5).tolist() == [0, 1000, 0, 1000, 1000]
    last = np.array([np.nextafter(np.float32(1), np.float32(0))])
    assert uniform_legal(last, 5, mask).tolist() == [4]
    assert uniform_legal(last, 5).tolist() == [4]
