from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.domains.games.match import MatchResult
from paceline.domains.games.ratings import ELO, Z95, Pairing, fit, rate, round_robin, wilson


def result(wins: int, draws: int, losses: int) -> MatchResult:
    return MatchResult(wins, draws, losses, 1.0)


@pytest.mark.parametrize(("points", "games"), [(75.0, 100), (50.0, 100), (990.5, 1000), (1.0, 10)])
def test_two_players_have_the_closed_form(points: float, games: int) -> None:
    elo, margin = fit(np.array([[0.0, points], [games - points, 0.0]]), anchor=1, prior=0.0)
    share = points / games
    assert elo[0] == pytest.approx(400 * math.log10(share / (1 - share)), abs=1e-6)
    assert margin[0] == pytest.approx(Z95 * ELO / math.sqrt(games * share * (1 - share)))
    assert (elo[1], margin[1]) == (0.0, 0.0)


def test_without_an_anchor_the_mean_is_zero_and_two_share_the_uncertainty() -> None:
    points = np.array([[0.0, 75.0], [25.0, 0.0]])
    anchored, width = fit(points, anchor=1, prior=0.0)
    elo, margin = fit(points, prior=0.0)
    assert elo == pytest.approx([anchored[0] / 2, -anchored[0] / 2])
    assert margin == pytest.approx([width[0] / 2] * 2)


def test_a_cycle_of_equal_results_gives_equal_ratings() -> None:
    points = np.array([[0.0, 7.0, 3.0], [3.0, 0.0, 7.0], [7.0, 3.0, 0.0]])
    elo, margin = fit(points)
    assert elo == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    assert margin[0] == pytest.approx(margin[1]) == pytest.approx(margin[2])


def test_ratings_after_only_wins_are_finite_and_grow_with_the_games() -> None:
    tops = []
    for games in (2.0, 100.0, 1e6):
        points = np.array([[0.0, games, games], [0.0, 0.0, games], [0.0, 0.0, 0.0]])
        elo, margin = fit(points, anchor=2)
        assert np.isfinite(elo).all()
        assert np.isfinite(margin).all()
        assert elo[0] > elo[1] > elo[2] == 0.0
        tops.append(elo[0])
    assert tops == sorted(tops)


@given(st.lists(st.integers(0, 500), min_size=20, max_size=20), st.permutations(range(5)))
def test_ratings_solve_the_likelihood_and_do_not_depend_on_the_order(counts: list[int], order: list[int]) -> None:
    points = np.zeros((5, 5))
    points[~np.eye(5, dtype=bool)] = counts
    points += (points + points.T == 0) & ~np.eye(5, dtype=bool)  # every pair has played
    elo, margin = fit(points)
    expected = 1 / (1 + 10 ** ((elo[None, :] - elo[:, None]) / 400))
    games = points + points.T
    # At the maximum-likelihood ratings, every player's points equal the expected points, including the added draws.
    met = games > 0
    surplus = (points + 0.5 * met - (games + met) * expected).sum(1)
    assert surplus == pytest.approx(np.zeros(5), abs=1e-6 * games.sum())
    moved, width = fit(points[np.ix_(order, order)])
    assert moved == pytest.approx(elo[order], abs=1e-5)
    assert width == pytest.approx(margin[order], rel=1e-5)


def test_swapped_results_give_swapped_ratings() -> None:
    points = np.array([[0.0, 60.0, 80.0], [40.0, 0.0, 70.0], [20.0, 30.0, 0.0]])
    elo, margin = fit(points)
    mirrored, width = fit(points.T)
    assert mirrored == pytest.approx(-elo)
    assert width == pytest.approx(margin)


def test_the_fit_recovers_known_ratings_within_its_intervals() -> None:
    true = np.array([0.0, 120.0, 250.0, -90.0, 400.0])
    chances = 1 / (1 + 10 ** ((true[None, :] - true[:, None]) / 400))
    draw, inside, trials = np.random.default_rng(3), 0, 200
    for _ in range(trials):
        points = np.zeros((5, 5))
        for i, j in itertools.combinations(range(5), 2):
            points[i, j] = draw.binomial(400, chances[i, j])
            points[j, i] = 400 - points[i, j]
        elo, margin = fit(points, anchor=0)
        assert np.abs(elo - true).max() < 100
        inside += int((np.abs(elo - true) <= margin + 1e-9)[1:].sum())
    assert 0.92 < inside / (4 * trials) < 0.98  # 95 %, and seeded


def test_a_round_robin_is_rated_from_the_anchor() -> None:
    results = {(0, 1): result(8, 2, 0), (0, 2): result(10, 0, 0), (1, 2): result(6, 2, 2)}
    pairings = round_robin(["net", "greedy", "random"], lambda i, j: results[i, j])
    assert [(one.first, one.second) for one in pairings] == [
        ("net", "greedy"), ("net", "random"), ("greedy", "random"),
    ]  # fmt: skip
    ratings = rate(pairings, anchor="random")
    assert [one.name for one in ratings] == ["net", "greedy", "random"]
    assert (ratings[2].elo, ratings[2].margin) == (0.0, 0.0)
    assert [one.score for one in ratings] == [0.95, 0.4, 0.15]
    floating = rate(pairings, anchor="nobody")
    assert sum(one.elo for one in floating) == pytest.approx(0.0)
    assert all(one.margin > 0 for one in floating)
    assert floating[0].elo - floating[2].elo == pytest.approx(ratings[0].elo)


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    # From the formula by hand: z = 1.96, 5 of 10 and 0 and 10 of 10; then a large sample.
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (700, 1000, 0.6709, 0.7276)],
)
def test_wilson(wins: int, games: int, low: float, high: float) -> None:
    assert wilson(wins, games) == pytest.approx((low, high), abs=1e-4)


def test_wilson_is_symmetric_and_0_to_1_without_games() -> None:
    for wins, games in ((3, 17), (0, 5), (17, 17)):
        low, high = wilson(wins, games)
        assert wilson(games - wins, games) == pytest.approx((1 - high, 1 - low))
    assert wilson(0, 0) == (0.0, 1.0)
    rate, low, high = Pairing("a", "b", result(3, 2, 5)).win_rate
    assert (rate, (low, high)) == (0.3, wilson(3, 10))
