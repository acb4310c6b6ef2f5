"""GP-UCB: chooses the next of finitely many candidates by a Gaussian process and an upper confidence bound.

    tried, seen -> GP (RBF + white noise) -> mean and std of every candidate -> the highest mean + beta * std

Observations are scaled to mean 0 and standard deviation 1 before the fit, so that beta is independent of the scale of
the rewards.
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

FEWEST = 2
"""Smallest number of observations for a fit."""
LENGTHS = (0.1, 10.0)
"""Bounds of the length scale of the kernel."""
NOISES = (1e-3, 2.0)
"""Bounds of the noise variance, for observations that are scaled to variance 1."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Predicted mean of every candidate and the standard deviation of that mean."""

    mean: Floats  # [C]
    std: Floats  # [C] without the noise of an observation

    def upper(self, beta: float) -> Floats:
        """[C] upper confidence bounds: mean + beta * std."""
        return self.mean + beta * self.std


class GaussianProcess(Protocol):
    """A regression model that predicts a mean and its uncertainty."""

    def __call__(self, points: Floats, tried: Floats, seen: Floats) -> Belief:
        """Predict the values at `points` [C, d] from observations `seen` [N] at `tried` [N, d]."""


def require_scikit_learn() -> None:
    """Raise MissingExtra if scikit-learn is not installed."""
    try:
        import sklearn.gaussian_process  # noqa: F401
    except ImportError as error:
        raise MissingExtra("a search over workflows", "search") from error


def gaussian_process(points: Floats, tried: Floats, seen: Floats) -> Belief:
    """A `GaussianProcess` by scikit-learn: RBF and white-noise kernel, fitted by maximum likelihood.

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
        # With few observations the best length or noise is often at a bound, which is not worth a warning.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(tried, (seen - centre) / scale)
        mean, std = model.predict(points, return_std=True)
    # scikit-learn returns the deviation of a new observation; subtract the noise to get that of the mean.
    noise = float(model.kernel_.k2.noise_level)
    std = np.sqrt(np.maximum(std**2 - noise, 0.0))
    return Belief(centre + scale * np.asarray(mean, np.float64), scale * np.asarray(std, np.float64))


def choose(belief: Belief, beta: float, taken: Sequence[int]) -> int:
    """The index of the candidate with the highest upper bound, without those in `taken`; the first in case of a tie."""
    upper = belief.upper(beta)
    upper[list(taken)] = -np.inf
    return int(np.argmax(upper))
