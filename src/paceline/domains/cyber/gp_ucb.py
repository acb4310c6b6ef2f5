"""What to try next, among finitely many: a Gaussian process over what was seen, and an upper confidence bound.

    tried, seen -> GP (RBF + white noise) -> mean and deviation of every candidate -> the highest mean + beta deviations

Observations are scaled to mean 0 and deviation 1 before the fit, so beta means the same whatever the rewards are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.errors import MissingExtra

Floats = NDArray[np.float64]

EXTRA = "search"
FEWEST = 2
"""Observations from which on a fit says anything."""
LENGTHS = (0.1, 10.0)
"""Between which the length scale of the kernel is fitted."""
NOISES = (1e-3, 2.0)
"""The same for the variance of the noise, of observations with variance 1."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is expected of every candidate."""

    mean: Floats  # [C]
    std: Floats  # [C] of the mean, without the noise of an observation

    def upper(self, beta: float) -> Floats:
        """[C] the upper confidence bound."""
        return self.mean + beta * self.std


class GaussianProcess(Protocol):
    """Learns from observations what to expect elsewhere."""

    def __call__(self, points: Floats, tried: Floats, seen: Floats) -> Belief:
        """What is expected of `points` [C, d], where `tried` [N, d] gave `seen` [N]."""


def require_scikit_learn() -> None:
    """Raise MissingExtra without it."""
    try:
        import sklearn.gaussian_process  # noqa: F401
    except ImportError as error:
        raise MissingExtra("a search over workflows", EXTRA) from error


def gaussian_process(points: Floats, tried: Floats, seen: Floats) -> Belief:
    """A `GaussianProcess`: RBF and white noise, fitted by the likelihood of what was seen (scikit-learn).

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    require_scikit_learn()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    centre, scale = float(np.mean(seen)), float(np.std(seen)) or 1.0
    kernel = RBF(1.0, LENGTHS) + WhiteKernel(0.1, NOISES)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0)
    with warnings.catch_warnings():
        # Few observations often put the best length or noise at the end of its range. That is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(tried, (seen - centre) / scale)
        mean, std = model.predict(points, return_std=True)
    # scikit-learn's deviation is that of a new observation. What is asked for is that of the mean.
    noise = float(model.kernel_.k2.noise_level)
    std = np.sqrt(np.maximum(std**2 - noise, 0.0))
    return Belief(centre + scale * np.asarray(mean, np.float64), scale * np.asarray(std, np.float64))


def choose(belief: Belief, beta: float, taken: Sequence[int]) -> int:
    """The candidate with the highest upper bound that has not been taken; of equals the first."""
    upper = belief.upper(beta)
    upper[list(taken)] = -np.inf
    return int(np.argmax(upper))
