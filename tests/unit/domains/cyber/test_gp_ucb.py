"""The Gaussian process and the choice by the upper confidence bound."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.cyber.fake_search import GOAL

from paceline.domains.cyber.gp_ucb import Belief, choose, gaussian_process
from paceline.domains.cyber.search import POINTS


def test_the_choice_is_by_the_upper_bound() -> None:
    belief = Belief(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.3, 0.4]))
    assert choose(belief, 0.0, []) == 0
    assert choose(belief, 2.0, []) == 1
    assert choose(belief, 9.0, []) == 2
    assert choose(belief, 2.0, [1]) == 0


def test_the_gaussian_process_predicts_well_and_is_less_certain_elsewhere() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    tried = rng.permutation(120)[:25]
    truth = -100.0 * np.linalg.norm(POINTS - POINTS[GOAL], axis=1) - 20.0
    belief = gaussian_process(POINTS, POINTS[tried], truth[tried])
    others = np.setdiff1d(np.arange(120), tried)
    assert np.corrcoef(belief.mean[others], truth[others])[0, 1] > 0.8
    assert belief.std[others].mean() > 2 * belief.std[tried].mean()
    assert (belief.std >= 0).all()
