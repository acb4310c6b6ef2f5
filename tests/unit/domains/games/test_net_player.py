from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.domains.games.playing import begun, rows_of, seeds

from paceline import DQN, PPO
from paceline.domains.games import ConnectFour, Ludo, TicTacToe
from paceline.domains.games.match import play_match
from paceline.domains.games.net_player import (
    ROWS,
    NetPlayer,
    RandomOpening,
    game_named,
    load_net,
    load_player,
    load_players,
    opening_for,
)
from paceline.domains.games.players import Minimax, RandomPlayer
from paceline.envs.game import Game, Player
from paceline.errors import CheckpointError, ConfigError
from paceline.ops.random_bits import mix

SMALL: dict[str, Any] = {"num_workers": 0, "n_envs": 4, "hidden_sizes": (8,), "seed": 5}
TIC_TAC_TOE, CONNECT_FOUR, LUDO = "paceline/TicTacToe-v0", "paceline/ConnectFour-v0", "paceline/Ludo-v0"


def saved(path: Path, env: Any = TIC_TAC_TOE, agent: type[PPO] | type[DQN] = PPO, **settings: Any) -> Path:
    agent(env, **{**SMALL, **settings}).save(path)
    return path


def some_way_in(engine: Any, n: int) -> Game:
    """Boards after a few random moves, none of which is finished."""
    game = begun(engine, n)
    for turn in range(4):
        game.play(rows_of(game), RandomPlayer().choose(game, rows_of(game), noise(n, turn)))
    assert not game.over.any()
    return game


def noise(n: int, stream: int = 0) -> NDArray[np.uint64]:
    return mix(np.arange(n, dtype=np.uint64) + np.uint64(1000 * stream + 17))


@pytest.mark.parametrize(("env", "engine"), [(TIC_TAC_TOE, TicTacToe), (CONNECT_FOUR, ConnectFour), (LUDO, Ludo)])
@pytest.mark.parametrize("agent", [PPO, DQN])
def test_plays_as_the_agent_predicts(env: str, engine: Any, agent: type[PPO] | type[DQN], tmp_path: Path) -> None:
    path = saved(tmp_path / "model", env, agent)
    game = some_way_in(engine, ROWS + 6)
    rows = rows_of(game)
    moves = load_net(path).choose(game, rows, noise(game.n))
    itself = agent.load(path)
    legal = game.legal(rows)
    assert legal[rows, moves].all()
    assert moves.tolist() == [
        itself.predict(obs, mask=mask)[0] for obs, mask in zip(game.observe(rows), legal, strict=True)
    ]


def test_observation_statistics_are_applied(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with PPO(TIC_TAC_TOE, **SMALL, n_steps=16, normalize_obs=True) as agent:
        agent.learn(256)
        agent.save(path)
    game = some_way_in(TicTacToe, 20)
    rows = rows_of(game)
    moves = load_net(path).choose(game, rows, noise(20))
    seen, legal = game.observe(rows), game.legal(rows)
    assert moves.tolist() == agent.predict(seen, mask=legal)[0].tolist()


def test_moves_on_a_board_do_not_depend_on_other_boards(tmp_path: Path) -> None:
    net = load_net(saved(tmp_path / "model", LUDO), sample=True)
    game = some_way_in(Ludo, 3 * ROWS)
    together = net.choose(game, rows_of(game), noise(game.n))
    for first in (0, 5, ROWS - 1, ROWS, 2 * ROWS + 1):
        rows = np.array([first])
        assert net.choose(game, rows, noise(game.n)[rows])[0] == together[first]


def test_it_takes_the_best_move_or_samples_with_the_given_noise(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    game = begun(TicTacToe, 200)
    rows = rows_of(game)
    greedy, sampling = load_net(path), load_net(path, sample=True)
    assert len(set(greedy.choose(game, rows, noise(200)))) == 1
    drawn = sampling.choose(game, rows, noise(200))
    assert set(drawn) == set(range(9))  # an untrained policy is nearly even
    assert np.array_equal(sampling.choose(game, rows, noise(200)), drawn)
    assert not np.array_equal(sampling.choose(game, rows, noise(200, 1)), drawn)
    # A network with action values has no probabilities to sample from.
    values = load_net(saved(tmp_path / "dqn", agent=DQN), sample=True)
    assert len(set(values.choose(game, rows, noise(200)))) == 1
    assert (greedy.varies, sampling.varies, values.varies) == (False, True, False)


def test_evaluations_of_a_policy(tmp_path: Path) -> None:
    game = some_way_in(TicTacToe, 3)
    legal = game.legal(rows_of(game))[1]
    net = load_net(saved(tmp_path / "ppo"))
    opinion = net.opinion(game, 1)
    assert not opinion.are_values
    assert np.isnan(opinion.moves[~legal]).all()
    assert opinion.moves[legal].sum() == pytest.approx(1.0)
    assert net.choose(game, np.array([1]), noise(1))[0] == np.nanargmax(opinion.moves)


def test_evaluations_of_a_value_network_are_values() -> None:
    outputs = np.zeros((ROWS, 9), np.float32), np.zeros(ROWS, np.float32)
    outputs[0][0], outputs[1][0] = np.arange(9), 0.5
    game = begun(TicTacToe, 1)
    game.play(np.array([0]), np.array([8]))
    plain = NetPlayer(lambda _: outputs, "tic_tac_toe", outputs="values").opinion(game, 0)
    assert plain.are_values
    assert plain.moves.tolist()[:8] == list(range(8))
    assert (np.isnan(plain.moves[8]), plain.position) == (True, 7.0)
    dueling = NetPlayer(lambda _: outputs, "tic_tac_toe", outputs="dueling values").opinion(game, 0)
    assert dueling.moves.tolist()[:8] == [0.5 + number - 4.0 for number in range(8)]
    assert dueling.position == 3.5


def test_a_run_folder_loads_its_newest_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with PPO(TIC_TAC_TOE, **SMALL, n_steps=16, output_dir=run, save_freq=64) as agent:
        agent.learn(128)
    game = some_way_in(TicTacToe, 30)
    rows = rows_of(game)
    newest = load_player(str(run), "tic_tac_toe").choose(game, rows, noise(30))
    named = load_player(str(run / "checkpoints" / "step_000000000128"), "tic_tac_toe")
    assert np.array_equal(named.choose(game, rows, noise(30)), newest)


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(load_player("minimax", "tic_tac_toe"), Minimax)
    monkeypatch.chdir(tmp_path)
    saved(Path("random"))
    assert isinstance(load_player("random", "tic_tac_toe"), RandomPlayer)
    assert isinstance(load_player("./random", "tic_tac_toe"), NetPlayer)
    game, players = load_players(["minimax", "./random"])
    assert (game, [type(one) for one in players]) == ("tic_tac_toe", [Minimax, NetPlayer])


def test_invalid_players_are_refused_by_name(tmp_path: Path) -> None:
    path = str(saved(tmp_path / "model"))
    with pytest.raises(ConfigError, match=f"{path}: was trained on tic_tac_toe and cannot play ludo"):
        load_player(path, "ludo")
    with pytest.raises(ConfigError, match="was trained on connect_four and cannot play tic_tac_toe"):
        load_players([path, str(saved(tmp_path / "other", CONNECT_FOUR))])
    with pytest.raises(ConfigError, match="was trained on CartPole-v1, which is not a two-player game"):
        load_player(str(saved(tmp_path / "pole", "CartPole-v1")), "ludo")
    with pytest.raises(ConfigError, match="with wrappers"):
        load_player(str(saved(tmp_path / "x", wrappers="gymnasium.wrappers:FlattenObservation")), "tic_tac_toe")
    with pytest.raises(
        ConfigError, match=r"'minmax': neither a path nor the name of a player\. Did you mean 'minimax'\?"
    ):
        load_player("minmax", "tic_tac_toe")
    with pytest.raises(ConfigError, match="'minimax': cannot play ludo"):
        load_player("minimax", "ludo")
    with pytest.raises(ConfigError, match=r"game: required,.* \(random, greedy\)"):
        load_players(["random", "greedy"])
    with pytest.raises(CheckpointError, match="no such folder"):
        load_player(str(tmp_path / "nowhere"), "ludo")
    game = begun(Ludo, 1)
    with pytest.raises(ConfigError, match="was trained on tic_tac_toe and cannot play ludo"):
        load_net(Path(path)).choose(game, rows_of(game), seeds(0))


def test_games_have_ids_and_names() -> None:
    assert (game_named(LUDO), game_named("connect_four")) == ("ludo", "connect_four")
    with pytest.raises(ConfigError, match=r"'paceline/Lido-v0': unknown\. Did you mean 'paceline/Ludo-v0'\?"):
        game_named("paceline/Lido-v0")
    with pytest.raises(ConfigError, match="'CartPole-v1': unknown"):
        game_named("CartPole-v1")


class Lowest:
    """Always plays the first legal move, so that two of them repeat the same game."""

    def __init__(self) -> None:
        self.stones: list[int] = []

    def choose(self, game: Game, rows: NDArray[np.intp], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        self.stones += game.observe(rows).sum(axis=1).astype(int).tolist()
        first: NDArray[np.int64] = game.legal(rows).argmax(axis=1)
        return first


def test_an_opening_is_random_and_later_moves_are_the_players() -> None:
    one = Lowest()
    plain = play_match(ConnectFour, Lowest(), Lowest(), 100, 0)
    assert (plain.wins, plain.losses, plain.mean_length.is_integer()) == (50, 50, True)  # one game, a hundred times
    varied = play_match(ConnectFour, RandomOpening(one, 4), RandomOpening(Lowest(), 4), 100, 0)
    assert not varied.mean_length.is_integer()
    assert min(one.stones) == 4


def test_openings_are_only_for_deterministic_players(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", CONNECT_FOUR)
    rigid, varied, fixed = load_net(path), load_net(path, sample=True), RandomPlayer()
    cases: list[tuple[list[Player], int]] = [
        ([rigid, rigid, fixed], 4), ([rigid, varied], 0), ([rigid, fixed], 0), ([fixed, fixed], 0),
    ]  # fmt: skip
    for players, moves in cases:
        assert opening_for("connect_four", players) == moves
        assert opening_for("connect_four", players, 3) == 3
    assert opening_for("connect_four", [rigid, rigid], 0) == 0
    assert opening_for("ludo", [rigid, rigid]) == 0
    with pytest.raises(ConfigError, match="opening=2: ludo has dice"):
        opening_for("ludo", [fixed, fixed], 2)
