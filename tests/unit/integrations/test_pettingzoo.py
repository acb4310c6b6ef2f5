from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces
from pettingzoo.test import api_test, seed_test
from tests.unit.domains.games.playing import any_move, rows_of, same, seeds, snapshot

from paceline.domains.games import ConnectFour, TicTacToe
from paceline.domains.games.match import play_match
from paceline.domains.games.players import RandomPlayer
from paceline.envs.game import IllegalMove
from paceline.errors import ConfigError, EnvError, MissingExtra
from paceline.integrations.pettingzoo import PettingZooGame, _aec_class, aec_env

IDS = ("paceline/Ludo-v0", "paceline/ConnectFour-v0", "paceline/TicTacToe-v0")


@pytest.mark.parametrize("env_id", IDS)
# The test knows observations with masks only from PettingZoo's own games, by their names.
@pytest.mark.filterwarnings("ignore:Observation is not a NumPy array")
@pytest.mark.filterwarnings("ignore:Observation space for each agent probably should be")
# An empty board is all zeros, and so is the mask of a finished game.
@pytest.mark.filterwarnings("ignore:Observation numpy array is all zeros")
@pytest.mark.filterwarnings("ignore:Action mask numpy array is all zeros")
def test_pettingzoos_api_test_passes(env_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    api_test(aec_env(env_id, render_mode="ansi"), num_cycles=300)
    assert "Passed API test" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", IDS)
def test_the_seed_decides(env_id: str) -> None:
    seed_test(lambda: aec_env(env_id), num_cycles=50)


def test_agents_see_their_own_side_and_get_their_own_reward() -> None:
    env = aec_env("paceline/TicTacToe-v0")
    env.reset(seed=0)
    for action in (0, 3, 1, 4):
        env.step(action)
    assert env.agent_selection == "player_0"
    first, second = (env.observe(agent) for agent in env.agents)
    assert first["observation"][:9].tolist() == second["observation"][9:].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert first["action_mask"].tolist() == [0, 0, 1, 0, 0, 1, 1, 1, 1]
    assert not second["action_mask"].any()
    env.step(2)
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert all(env.terminations.values())
    for _ in range(2):
        env.step(None)
    assert env.agents == []


def test_an_illegal_move_is_an_error() -> None:
    env = aec_env("paceline/TicTacToe-v0", render_mode="ansi")
    env.reset(seed=0)
    env.step(4)
    before = env.render()
    with pytest.raises(IllegalMove, match=r"action 4 is not legal"):
        env.step(4)
    assert env.render() == before


def test_only_our_games_become_aec_envs() -> None:
    with pytest.raises(ConfigError, match=r"not a Paceline game\. Did you mean 'paceline/Ludo-v0'"):
        aec_env("paceline/Lugo-v0")
    with pytest.raises(ConfigError, match="not a Paceline game"):
        aec_env("CartPole-v1")


def test_without_pettingzoo_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    _aec_class.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install 'paceline\[pettingzoo\]'"):
        aec_env(IDS[0])


def there_and_back(env_id: str, n: int) -> PettingZooGame:
    return PettingZooGame(lambda: aec_env(env_id, render_mode="ansi"), n)


def test_a_game_survives_conversion_to_pettingzoo_and_back() -> None:
    ours, theirs = ConnectFour(3), there_and_back("paceline/ConnectFour-v0", 3)
    assert (theirs.name, theirs.actions, theirs.obs_size) == ("connect_four_v0", 7, 84)
    assert theirs.over.all(), "not begun yet"
    for game in (ours, theirs):
        game.reset(rows_of(game), seeds(1, 2, 3))
    draw = np.random.default_rng(0)
    while not ours.over.all():
        rows = np.flatnonzero(~ours.over)
        assert np.array_equal(ours.legal(rows), theirs.legal(rows))
        assert np.array_equal(ours.observe(rows), theirs.observe(rows))
        assert np.array_equal(ours.mover[rows], theirs.mover[rows])
        assert ours.text(int(rows[0])) == theirs.text(int(rows[0]))
        actions = np.array([any_move(ours, int(row), draw) for row in rows])
        ours.play(rows, actions)
        theirs.play(rows, actions)
        assert np.array_equal(ours.over, theirs.over)
    assert np.array_equal(ours.winner, theirs.winner)
    other = np.array([1, 1, 1], np.int8)
    assert np.array_equal(ours.observe(rows_of(ours), other), theirs.observe(rows_of(ours), other))
    theirs.close()


def test_matches_full_boards_included() -> None:
    result = play_match(
        lambda n: there_and_back("paceline/TicTacToe-v0", n), RandomPlayer(), RandomPlayer(), 60, 0, boards=4
    )
    assert result == play_match(TicTacToe, RandomPlayer(), RandomPlayer(), 60, 0)
    assert result.draws > 0


def test_illegal_moves_are_refused_with_nothing_changed() -> None:
    game = there_and_back("paceline/TicTacToe-v0", 2)
    with pytest.raises(IllegalMove, match="tic_tac_toe_v0, board 0: the game is over"):
        game.play(np.array([0]), np.array([0]))
    game.reset(rows_of(game), seeds(1, 2))
    game.play(rows_of(game), np.array([4, 4]))
    before, texts = snapshot(game), [game.text(row) for row in (0, 1)]
    for wrong in (4, 9, -1):
        with pytest.raises(IllegalMove, match=rf"board 1: action {wrong} is not legal \(legal: 0, 1, 2, 3, 5"):
            game.play(rows_of(game), np.array([0, wrong]))
    assert same(before, snapshot(game))
    assert texts == [game.text(row) for row in (0, 1)]


class Tug(pettingzoo.AECEnv):  # type: ignore[misc]
    """Two agents pull in turn, by 0, 1 or 2; cut short after six pulls. Masks are in the infos."""

    metadata = {"name": "tug_v0"}  # noqa: RUF012

    def __init__(self, actions: int = 3, agents: int = 2, masked: bool = True, stuck: bool = False) -> None:
        self.possible_agents = [f"side_{i}" for i in range(agents)]
        self.count, self.masked, self.stuck = actions, masked, stuck

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (2, 2), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(self.count) if self.count else spaces.Box(-1, 1)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.pulls = 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        mask = {"action_mask": np.array([1, 1, 1], np.int8)} if self.masked else {}
        self.infos = {agent: dict(mask) for agent in self.agents}

    def step(self, action: int) -> None:
        if action == 2 and self.pulls == 4:
            raise ValueError("the rope broke")
        self.rewards = {agent: float(action) * (agent == self.agent_selection) for agent in self.agents}
        self.pulls += 1
        self.agent_selection = self.agents[self.pulls % 2]
        self.truncations = dict.fromkeys(self.agents, self.pulls == 6)
        if self.stuck:
            self.infos[self.agent_selection]["action_mask"] = np.zeros(3, np.int8)

    def observe(self, agent: str) -> Any:
        return np.full((2, 2), self.pulls / 6, np.float32)

    def close(self) -> None:
        self.agents = []


@pytest.mark.parametrize(("pulls", "winner"), [((2, 0) * 2 + (0, 1), 0), ((0, 1) * 3, 1), ((1, 1) * 3, -1)])
def test_truncated_games_are_won_by_the_higher_reward(pulls: tuple[int, ...], winner: int) -> None:
    game = PettingZooGame(Tug, 1)
    game.reset(np.array([0]), seeds(1))
    assert game.obs_size == 4
    assert game.text(0) == "tug_v0, side_0 to move"
    assert game.move_name(0, 2) == "action 2"
    for pull in pulls:
        assert not game.over[0]
        game.play(np.array([0]), np.array([pull]))
    assert game.over[0]
    assert game.winner[0] == winner
    assert not game.legal(np.array([0])).any()
    game.reset(np.array([0]), seeds(1))
    assert not game.over[0]
    game.close()


def test_an_env_that_raises_is_named() -> None:
    game = PettingZooGame(Tug, 2)
    game.reset(rows_of(game), seeds(1, 2))
    for _ in range(4):
        game.play(np.array([1]), np.array([0]))
    with pytest.raises(EnvError, match="tug_v0, board 1: raised in step with action 2: ValueError: the rope broke"):
        game.play(np.array([1]), np.array([2]))


def test_a_player_to_move_without_a_legal_action_is_an_error() -> None:
    game = PettingZooGame(lambda: Tug(stuck=True), 1)
    game.reset(np.array([0]), seeds(1))
    with pytest.raises(EnvError, match="tug_v0, board 0: side_1 is to move, but action_mask has no legal action"):
        game.play(np.array([0]), np.array([0]))


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"agents": 3}, "must have two agents"),
        ({"actions": 0}, "equal Discrete action spaces"),
        ({"actions": 4}, r"needs an action_mask with 4 entries .* \(got \(3,\)\)"),
        ({"masked": False}, "needs an action_mask with 3 entries"),
    ],
)
def test_envs_that_are_not_two_player_games_are_refused(kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PettingZooGame(lambda: Tug(**kwargs), 1)
