"""How strong players are: everybody against everybody, intervals of win rates, and ratings fitted to all of it at once.

A rating says that whoever is 400 points ahead scores ten times as many points as the other; a draw is half a point to
each. Ratings are the most likely ones for all results together (Bradley & Terry 1952), so their order of play does not
matter, as it does where Elo is updated game by game.
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
"""Points of a rating for one unit of log-odds."""
Z95 = 1.959964
"""Standard deviations on either side of a mean that hold 95 % of a normal distribution."""
PRIOR_GAMES = 1.0
"""Draws that are added to every match: who has won all games is very strong, but not infinitely."""
CLOSE = 1e-10
LONGEST_STEP = 2.0
"""In log-odds. Where all is won or lost the likelihood is nearly flat, and a whole step would go far too far."""
MOST_STEPS = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairing:
    """How a match went, for the first of the two."""

    first: str
    second: str
    result: MatchResult

    @property
    def win_rate(self) -> tuple[float, float, float]:
        """Share of games that the first has won, and the ends of its 95 % interval."""
        return self.result.win_rate, *wilson(self.result.wins, self.result.games)


@dataclass(frozen=True, slots=True)
class Rating:
    """How strong a player is."""

    name: str
    elo: float
    margin: float
    """Half the width of its 95 % interval; 0 for whom the others are measured from."""
    score: float
    """Share of all points that it could have made."""


def round_robin(names: Sequence[str], match: Callable[[int, int], MatchResult]) -> list[Pairing]:
    """Everybody against everybody.

    Args:
        names: At least two, all different.
        match: Has the players of these two numbers play; the result is the first one's.
    """
    return [Pairing(names[i], names[j], match(i, j)) for i, j in combinations(range(len(names)), 2)]


def rate(pairings: Sequence[Pairing], *, anchor: str | None = None) -> list[Rating]:
    """Everybody's rating, the strongest first.

    Args:
        pairings: All results. Whoever is rated must have met all others, if only by way of third ones.
        anchor: Whose rating is 0, if among the players; else the mean is.
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
    """The ratings that make these results most likely.

    Args:
        points: [n, n] what each row's player took from each column's; with the transposed one, the number of games.
        anchor: Whose rating is 0; without one the mean is.
        prior: Draws that are added to every match.

    Returns:
        Ratings [n] and half the widths of their 95 % intervals [n], by the curvature of the likelihood (Fisher's
        information), which takes a draw for as uncertain as any game: where there are many it is a little too wide.
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
    """[n, n] of the strengths about their mean: Fisher's information inverted, but for what all have in common."""
    each = games * expected * (1.0 - expected)
    information = np.diag(each.sum(1)) - each
    # Adding to all strengths alike changes nothing, so the matrix has no inverse: fill that one direction, then empty
    # it again.
    common = np.full_like(information, 1.0 / len(information))
    scale = float(information.diagonal().max())
    inverse: Floats = np.linalg.inv(information + scale * common) - common / scale
    return inverse


def wilson(wins: int, games: int) -> tuple[float, float]:
    """The 95 % interval of a probability, from how often it came true (Wilson 1927). Holds near 0 and 1, too."""
    if games == 0:
        return 0.0, 1.0
    share, z2 = wins / games, Z95**2 / games
    middle = (share + z2 / 2) / (1 + z2)
    half = Z95 * math.sqrt(share * (1 - share) / games + z2 / games / 4) / (1 + z2)
    # At the ends the two are equal but for rounding.
    low = 0.0 if wins == 0 else middle - half
    return low, 1.0 if wins == games else middle + half
