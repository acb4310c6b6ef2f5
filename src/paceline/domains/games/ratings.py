"""Round robins, Wilson intervals of win rates, and Elo ratings fitted to all results at once.

A player that is rated 400 points higher than another is expected to score ten times as many points against it; a draw
is half a point for each. The ratings are the maximum-likelihood fit to all results (Bradley & Terry 1952). Unlike Elo
ratings that are updated after every game, they do not depend on the order of the games.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.match import MatchResult

ELO = 400.0 / math.log(10.0)
"""Rating points per unit of log-odds."""
Z95 = 1.959964
"""97.5 % quantile of the normal distribution, for two-sided 95 % intervals."""
PRIOR_GAMES = 1.0
"""Draws added to every match, so that a player that has won all games gets a finite rating."""
CLOSE = 1e-10
"""Largest change in log-odds at which the fit has converged."""
LONGEST_STEP = 2.0
"""Largest Newton step in log-odds. If all games are won or lost, the likelihood is nearly flat and a full step would
overshoot."""
MOST_STEPS = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Result of a match between two players, from the side of the first."""

    first: str
    second: str
    result: MatchResult

    @property
    def win_rate(self) -> tuple[float, float, float]:
        """Share of games that the first player has won, and the ends of its 95 % interval."""
        return self.result.win_rate, *wilson(self.result.wins, self.result.games)


@dataclass(frozen=True, slots=True)
class Rating:
    """Elo rating of a player."""

    name: str
    elo: float
    margin: float
    """Half the width of its 95 % interval; 0 for the anchor."""
    score: float
    """Points as a share of the largest possible number of points."""


def round_robin(names: Sequence[str], match: Callable[[int, int], MatchResult]) -> list[Pairing]:
    """Play a match between every pair of players.

    Args:
        names: Names of the players: at least two, all different.
        match: Plays a match between the players with these two indices; the result is that of the first.
    """
    return [Pairing(names[i], names[j], match(i, j)) for i, j in combinations(range(len(names)), 2)]


def rate(pairings: Sequence[Pairing], *, anchor: str | None = None) -> list[Rating]:
    """Rate all players, the strongest first.

    Args:
        pairings: All results. Matches must connect all players, directly or through other players.
        anchor: Name of the player with rating 0. If it is None or not among the players, the mean rating is 0.
    """
    names = list(dict.fromkeys(name for one in pairings for name in (one.first, one.second)))
    points = np.zeros((len(names), len(names)))
    for one in pairings:
        i, j = names.index(one.first), names.index(one.second)
        points[i, j] += one.result.wins + one.result.draws / 2
        points[j, i] += one.result.losses + one.result.draws / 2
    elo, margin = fit(points, anchor=names.index(anchor) if anchor in names else None)
    scores = points.sum(1) / (points + points.T).sum(1)
    rows = zip(names, elo.tolist(), margin.tolist(), scores.tolist(), strict=True)
    return sorted((Rating(*row) for row in rows), key=lambda rating: -rating.elo)


def fit(points: Floats, *, anchor: int | None = None, prior: float = PRIOR_GAMES) -> tuple[Floats, Floats]:
    """Fit ratings by maximum likelihood, with Newton's method.

    Args:
        points: [n, n] points of the row's player against the column's. Added to its transpose, the number of games.
        anchor: Index of the player with rating 0; without one, the mean rating is 0.
        prior: Draws that are added to every match.

    Returns:
        Ratings [n] and half the widths of their 95 % intervals [n], from the Fisher information. It treats a draw as
        a game with an uncertain result, so the intervals are slightly too wide if there are many draws.
    """
    met = (points + points.T) > 0
    points = points + prior / 2 * met
    games = points + points.T
    n = len(points)
    strength = np.zeros(n)  # log-odds
    for _ in range(MOST_STEPS):
        expected = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        step = _covariance(games, expected) @ (points - games * expected).sum(1)
        step *= LONGEST_STEP / max(LONGEST_STEP, float(np.abs(step).max()))
        strength += step
        if np.abs(step).max() < CLOSE:
            break
    covariance = _covariance(games, 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None])))
    variance = covariance.diagonal()
    if anchor is None:
        strength = strength - strength.mean()
    else:
        strength = strength - strength[anchor]
        variance = variance + variance[anchor] - 2.0 * covariance[anchor]
    return ELO * strength, ELO * Z95 * np.sqrt(np.maximum(variance, 0.0))


def _covariance(games: Floats, expected: Floats) -> Floats:
    """[n, n] covariance of the strengths around their mean: the pseudo-inverse of the Fisher information."""
    each = games * expected * (1.0 - expected)
    information = np.diag(each.sum(1)) - each
    # Adding a constant to all strengths changes nothing, so the matrix is singular in that direction. Add a term for
    # it before the inversion and subtract it afterwards.
    common = np.full_like(information, 1.0 / len(information))
    scale = float(information.diagonal().max())
    inverse: Floats = np.linalg.inv(information + scale * common) - common / scale
    return inverse


def wilson(wins: int, games: int) -> tuple[float, float]:
    """The 95 % interval of a win probability (Wilson 1927), which is accurate near 0 and 1 too."""
    if games == 0:
        return 0.0, 1.0
    share, z2 = wins / games, Z95**2 / games
    middle = (share + z2 / 2) / (1 + z2)
    half = Z95 * math.sqrt(share * (1 - share) / games + z2 / games / 4) / (1 + z2)
    # Exactly 0 or 1 in these cases, apart from rounding.
    low = 0.0 if wins == 0 else middle - half
    return low, 1.0 if wins == games else middle + half
