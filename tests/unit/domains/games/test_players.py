from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.games.playing import ENGINES, begun, play, rows_of

from paceline.domains.games import ConnectFour, Engine, Ludo, TicTacToe
from paceline.domains.games.match import play_match
from paceline.domains.games.players import (
    PLAYERS,
    GreedyPlayer,
    LudoHeuristic,
    Minimax,
    RandomPlayer,
    player,
    players_of,
)
from paceline.envs.game import Game, Player
from paceline.errors import ConfigError
from paceline.ops.random_bits import mix

NOISE = mix(np.arange(200, dtype=np.uint64))
PAIRS = [(engine, name) for engine in ENGINES for name in players_of(engine.name)]


def choices(one: Player, game: Game) -> set[int]:
    """All moves that a player makes on board 0, over many random numbers."""
    return {int(one.choose(game, np.array([0]), noise)[0]) for noise in NOISE[:, None]}


@pytest.mark.parametrize(("engine", "name"), PAIRS)
def test_choices_are_legal_and_depend_on_the_noise_only(engine: Engine, name: str) -> None:
    one = player(name, engine.name)
    game = begun(engine, 64)
    for turn in range(8):
        rows = np.flatnonzero(~game.over)
        noise = mix(rows.astype(np.uint64) + np.uint64(100 * turn))
        actions = one.choose(game, rows, noise)
        assert game.legal(rows)[np.arange(len(rows)), actions].all()
        assert np.array_equal(one.choose(game, rows[::-1], noise[::-1]), actions[::-1])
        game.play(rows, actions)


def test_the_random_player_plays_every_legal_move() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, *[2] * 6)
    assert choices(RandomPlayer(), game) == {0, 1, 3, 4, 5, 6}


def test_greedy_takes_wins() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, 3, 0, 3, 0, 3, 0)  # both have three in a column: winning comes before blocking
    assert choices(GreedyPlayer(), game) == {3}
    game = begun(TicTacToe, 1)
    play(game, 0, 0, 4, 1, 5)
    assert choices(GreedyPlayer(), game) == {2}


def test_greedy_blocks() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, 3, 0, 3, 6, 3)
    assert choices(GreedyPlayer(), game) == {3}
    game = begun(TicTacToe, 1)
    play(game, 0, 0, 4, 2)
    assert choices(GreedyPlayer(), game) == {1}


def test_greedy_moves_at_random_without_a_threat() -> None:
    assert choices(GreedyPlayer(), begun(TicTacToe, 1)) == set(range(9))


@pytest.mark.parametrize(("engine", "at_least"), [(ConnectFour, 0.8), (TicTacToe, 0.7)])
def test_greedy_beats_random(engine: Engine, at_least: float) -> None:
    assert play_match(engine, GreedyPlayer(), RandomPlayer(), 1000, 0).win_rate > at_least


def test_heuristic_beats_random_as_often_as_it_should() -> None:
    result = play_match(Ludo, LudoHeuristic(), RandomPlayer(), 2000, 0)
    assert 0.84 <= result.win_rate <= 0.94


def test_minimax_never_loses_to_random() -> None:
    result = play_match(TicTacToe, Minimax(), RandomPlayer(), 2000, 0)
    assert result.losses == 0
    assert result.win_rate > 0.8


def test_minimax_draws_against_itself() -> None:
    result = play_match(TicTacToe, Minimax(), Minimax(), 500, 0)
    assert result.draws == 500
    assert result.mean_length == 9


def test_minimax_wins_as_soon_as_possible_and_chooses_randomly_among_equals() -> None:
    game = begun(TicTacToe, 1)
    assert choices(Minimax(), game) == set(range(9)), "every first move draws"
    play(game, 0, 0, 1)
    assert choices(Minimax(), game) == {3, 4, 6}, "the moves that win by force, all at the seventh stone"
    play(game, 0, 4, 2)
    assert choices(Minimax(), game) == {8}


@pytest.mark.parametrize("name", PLAYERS)
def test_players_by_name(name: str) -> None:
    games = [engine.name for engine in ENGINES if name in players_of(engine.name)]
    assert games
    assert isinstance(player(name, games[0]), PLAYERS[name])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "game", "text"),
    [
        ("minimax", "ludo", "player 'minimax': cannot play ludo. Choose one of random, heuristic."),
        ("heuristic", "connect_four", "cannot play connect_four. Choose one of random, greedy."),
        ("heuristc", "ludo", "player 'heuristc': unknown. Did you mean 'heuristic'?"),
        ("zzz", "tic_tac_toe", "player 'zzz': unknown. Known: greedy, minimax, random."),
    ],
)
def test_players_that_cannot_play_the_game_are_refused_by_name(name: str, game: str, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        player(name, game)
    assert str(error.value).endswith(text)


@pytest.mark.parametrize(("name", "engine"), [("greedy", Ludo), ("heuristic", TicTacToe), ("minimax", ConnectFour)])
def test_players_refuse_games_that_they_cannot_play(name: str, engine: Engine) -> None:
    game = begun(engine, 1)
    with pytest.raises(ConfigError, match=f"{name!r}: cannot play {engine.name}"):
        PLAYERS[name]().choose(game, rows_of(game), NOISE[:1])
