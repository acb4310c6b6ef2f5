from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tests.unit.envs import toys

from paceline.domains.games.env import GameEnv
from paceline.envs.game import IllegalMove
from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError

IDS = {"ludo": "paceline/Ludo-v0", "connect_four": "paceline/ConnectFour-v0", "tic_tac_toe": "paceline/TicTacToe-v0"}
EACH = pytest.mark.parametrize("name", list(IDS))


class Obliging(GameEnv):
    """Replaces illegal actions by legal ones, because Gymnasium's checker samples actions without the mask."""

    def step(self, action: Any) -> Any:
        mask = self.game.legal(np.array([0]))[0]
        return super().step(action if mask[action] else int(mask.argmax()))


@EACH
def test_gymnasiums_env_checker_passes(name: str) -> None:
    env = Obliging(name, render_mode="ansi")
    env.spec = gym.spec(IDS[name])
    check_env(env)


def play(env: GameEnv, seed: int, draw: np.random.Generator) -> list[Any]:
    """A whole episode with any legal moves."""
    obs, info = env.reset(seed=seed)
    seen: list[Any] = [(obs, info)]
    while True:
        assert obs in env.observation_space
        assert np.array_equal(info["action_mask"], env.game.legal(np.array([0]))[0])
        assert env.game.mover[0] == info["seat"], "the learner is to move"
        obs, reward, terminated, truncated, info = env.step(int(draw.choice(np.flatnonzero(info["action_mask"]))))
        seen.append((obs, reward, terminated, truncated, info))
        assert not truncated
        if terminated:
            return seen
        assert reward == 0.0


@EACH
def test_the_reward_is_from_the_learners_side_in_both_seats(name: str) -> None:
    env = GameEnv(name)
    draw = np.random.default_rng(0)
    ends = set()
    for seed in range(25 if name == "ludo" else 120):
        obs, reward, _, _, info = play(env, seed, draw)[-1]
        winner = int(env.game.winner[0])
        assert reward == {-1: 0.0, info["seat"]: 1.0}.get(winner, -1.0)
        assert info["action_mask"].all(), "nothing is chosen any more"
        assert np.array_equal(obs, env.game.observe(np.array([0]), np.array([info["seat"]], np.int8))[0])
        ends.add((info["seat"], reward))
    wanted = {(seat, reward) for seat in (0, 1) for reward in (1.0, -1.0)}
    assert ends - {(0, 0.0), (1, 0.0)} == wanted


@EACH
def test_seed_and_actions_decide_the_episode(name: str) -> None:
    runs = [play(GameEnv(name), 11, np.random.default_rng(5)) for _ in range(2)]
    # An earlier game has no effect.
    used = GameEnv(name)
    play(used, 3, np.random.default_rng(1))
    runs.append(play(used, 11, np.random.default_rng(5)))
    texts = [
        repr([[np.asarray(part).tolist() if isinstance(part, np.ndarray) else part for part in step] for step in run])
        for run in runs
    ]
    assert texts[0] == texts[1] == texts[2]


def test_the_seed_decides_the_seat_evenly() -> None:
    env = GameEnv("tic_tac_toe")
    seats = [env.reset(seed=seed)[1]["seat"] for seed in range(400)]
    assert 0.42 < np.mean(seats) < 0.58
    first, second = (seats.index(seat) for seat in (0, 1))
    assert env.reset(seed=first)[0].sum() == 0
    assert env.reset(seed=second)[0].sum() == 1, "the opponent has begun"


def test_without_a_seed_games_differ() -> None:
    env = GameEnv("ludo")
    env.reset(seed=1)
    boards = {env.reset()[0].tobytes() for _ in range(20)}
    assert len(boards) > 10


@EACH
def test_an_illegal_action_raises_and_changes_nothing(name: str) -> None:
    env = GameEnv(name)
    env.reset(seed=2)
    before = {key: array.copy() for key, array in env.game.state.items()}
    with pytest.raises(IllegalMove, match=rf"{name}, board 0: action {env.game.actions} is not legal \(legal: "):
        env.step(env.game.actions)
    assert all(np.array_equal(before[key], array) for key, array in env.game.state.items())


def test_a_better_opponent_is_harder_to_beat() -> None:
    def score(opponent: str) -> float:
        env, draw = GameEnv("tic_tac_toe", opponent=opponent), np.random.default_rng(0)
        return float(np.mean([play(env, seed, draw)[-1][1] for seed in range(100)]))

    assert score("random") > score("greedy") > score("minimax")
    assert score("minimax") <= -0.7


def test_render_needs_the_render_mode() -> None:
    env = gym.make(IDS["connect_four"], render_mode="ansi", disable_env_checker=True)
    env.reset(seed=0)
    assert "Connect Four" in str(env.render())
    assert GameEnv("connect_four").render() is None


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"opponent": "minimax"}, "player 'minimax': cannot play ludo. Choose one of random, heuristic"),
        ({"oponent": "random"}, "unknown argument 'oponent'. Did you mean 'opponent'?"),
        ({"game": "chess"}, "game 'chess': unknown. Known: connect_four, ludo, tic_tac_toe."),
    ],
)
def test_wrong_settings_are_refused(kwargs: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        EnvRecipe(source=IDS["ludo"], kwargs=kwargs).make()
    assert text in str(error.value)


def test_unknown_render_modes_are_refused() -> None:
    with pytest.raises(ConfigError, match="render_mode='human': must be 'ansi'"):
        GameEnv("ludo", render_mode="human")


@EACH
def test_a_block_of_envs_steps_it(name: str) -> None:
    block, spec, episode = toys.single(IDS[name], 3)
    assert spec.masked
    rows = [toys.blank_row(spec, 3) for _ in range(2)]
    block.reset(rows[0])
    draw = np.random.default_rng(0)
    for _ in range(120):
        assert rows[0].mask is not None
        rows[0].action[...] = (rows[0].mask * draw.random(rows[0].mask.shape)).argmax(axis=1)
        block.step(rows[0].action, *rows)
        rows.reverse()
    assert (episode > 0).all()
    block.close()
