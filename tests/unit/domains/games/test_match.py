from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.domains.games.playing import ENGINES

from paceline.domains.games import ConnectFour, Engine, Ludo, TicTacToe
from paceline.domains.games.match import MatchResult, play_match
from paceline.domains.games.players import GreedyPlayer, LudoHeuristic, RandomPlayer
from paceline.envs.game import Game, Rows
from paceline.errors import ConfigError


class Witness(RandomPlayer):
    """Records the seats in which it made the first move of a game."""

    def __init__(self) -> None:
        self.begun = 0

    def choose(self, game: Game, rows: Rows, noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        self.begun += int((game.observe(rows).sum(axis=1) == 0).sum())
        return super().choose(game, rows, noise)


@pytest.mark.parametrize("boards", [1, 7, 100])
def test_seats_alternate_exactly_evenly(boards: int) -> None:
    one, other = Witness(), Witness()
    result = play_match(TicTacToe, one, other, 100, 0, boards)
    assert (one.begun, other.begun) == (50, 50)
    assert result.games == 100


@pytest.mark.parametrize("engine", ENGINES)
def test_the_seed_decides_whatever_the_number_of_boards(engine: Engine) -> None:
    results = {play_match(engine, RandomPlayer(), RandomPlayer(), 40, 3, boards) for boards in (3, 16, 256)}
    assert len(results) == 1
    assert play_match(engine, RandomPlayer(), RandomPlayer(), 40, 4) not in results


def test_the_result_is_the_first_players() -> None:
    strong = play_match(ConnectFour, GreedyPlayer(), RandomPlayer(), 200, 1)
    weak = play_match(ConnectFour, RandomPlayer(), GreedyPlayer(), 200, 1)
    assert strong.wins > strong.losses
    assert weak.wins < weak.losses
    assert strong.win_rate == strong.wins / 200


def test_equal_players_win_half_of_the_games() -> None:
    result = play_match(Ludo, LudoHeuristic(), LudoHeuristic(), 1000, 0)
    assert 0.45 < result.win_rate < 0.55


def test_length_counts_the_decisions_of_both() -> None:
    result = play_match(TicTacToe, RandomPlayer(), RandomPlayer(), 2000, 0)
    assert 7.3 < result.mean_length < 7.9
    assert 0.09 < result.draws / result.games < 0.16


@pytest.mark.parametrize(("games", "boards", "text"), [(0, 1, "games=0"), (7, 1, "Try 8"), (2, 0, "boards=0")])
def test_odd_or_too_few_games_are_refused(games: int, boards: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        play_match(TicTacToe, RandomPlayer(), RandomPlayer(), games, 0, boards)


def test_negative_and_large_seeds_are_seeds() -> None:
    results = {seed: play_match(Ludo, RandomPlayer(), RandomPlayer(), 20, seed) for seed in (-1, 2**80, 1)}
    assert all(isinstance(result, MatchResult) for result in results.values())
