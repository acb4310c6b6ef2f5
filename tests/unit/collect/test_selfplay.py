"""Self-play envs: turn order, opponent sampling and restoring an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline.collect.selfplay import GameBlock, Opponents, best_move, sampled_move
from paceline.domains.games.env import GameEnv
from paceline.domains.games.players import Minimax, RandomPlayer
from paceline.domains.games.tic_tac_toe import TicTacToe
from paceline.envs.block import History
from paceline.envs.game import Player
from paceline.envs.make import EnvRecipe
from paceline.memory.opponent_pool import DRAW, LOSS, WIN, OpponentPool
from paceline.memory.rows import Row
from paceline.spec import PLAIN

SPEC = EnvRecipe(source="paceline/TicTacToe-v0").probe()
FIXED, SLOTS = 2, 2


class Net:
    """Prefers the action that its slot says, and counts its calls and rows."""

    def __init__(self, slot: int, calls: list[tuple[int, int]]) -> None:
        self.slot, self.calls = slot, calls

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.calls.append((self.slot, len(obs[PLAIN])))
        order = np.arange(9, dtype=np.float32)
        params = np.tile(order if self.slot else -order, (len(obs[PLAIN]), 1))
        return params, np.zeros(len(params), np.float32)


class Bed:
    """A block of `groups` groups of 4 with a pool of two fixed players and two snapshots."""

    def __init__(self, odds: list[float], *, groups: int = 2, first_env: int = 0, epsilon: float = 0.0) -> None:
        n = groups * 4
        total = first_env + n
        fields = OpponentPool.fields(slots=SLOTS, fixed=FIXED, weights=8, n_envs=total)
        arrays = {field.name: np.zeros(field.shape, field.dtype) for field in fields}
        self.pool, self.calls = OpponentPool(arrays), list[tuple[int, int]]()
        self.pool.odds[:], self.pool.next_epsilon[0] = odds, epsilon
        players: list[Player] = [RandomPlayer(), Minimax()]
        opponents = Opponents(self.pool, players, lambda slot: Net(slot, self.calls), best_move, 4)
        self.game, self.episode = TicTacToe(n), np.zeros(n, np.int64)
        self.block = GameBlock(self.game, opponents, seed=3, first_env=first_env, episode=self.episode)
        self.row, self.after = Row.blank(SPEC, n), Row.blank(SPEC, n)

    def legal(self, rng: np.random.Generator) -> NDArray[np.int64]:
        assert self.row.mask is not None
        return np.array([rng.choice(np.flatnonzero(mask)) for mask in self.row.mask])

    def step(self, action: NDArray[np.int64]) -> None:
        assert self.block.step(action, self.row, self.after) == ()
        self.row, self.after = self.after, self.row


def test_every_step_is_a_move_of_the_learner_and_results_are_counted_where_they_belong() -> None:
    bed, rng = Bed([0.4, 0.3, 0.2, 0.1]), np.random.default_rng(0)
    bed.block.reset(bed.row)
    assert set(bed.block._seat.tolist()) == {0, 1}, "both seats are played"
    total = np.zeros((4, 3), np.int64)
    for _ in range(200):
        assert not bed.game.over.any()
        assert (bed.game.mover == bed.block._seat).all(), "it is the learner's turn everywhere"
        np.testing.assert_array_equal(bed.row.mask, bed.game.legal(np.arange(8)))
        met = bed.pool.opponent.copy()
        bed.step(bed.legal(rng))
        said = bed.after  # the row that was acted from
        for env in np.flatnonzero(said.terminated):
            result = {-1.0: LOSS, 0.0: DRAW, 1.0: WIN}[float(said.reward[env])]
            total[met[env], result] += 1
        assert not said.truncated.any()
        assert (said.reward[~said.terminated] == 0).all()
    np.testing.assert_array_equal(bed.pool.results.sum(0), total)
    assert total[1, WIN] == 0, "minimax never loses"
    assert total[0, WIN] > total[0, LOSS] * 0.5
    assert bed.episode.sum() == total.sum()


def test_opponents_are_sampled_by_their_odds() -> None:
    bed, rng = Bed([0.5, 0.0, 0.25, 0.25], groups=16), np.random.default_rng(0)
    bed.block.reset(bed.row)
    for _ in range(150):
        bed.step(bed.legal(rng))
    games = bed.pool.results.sum((0, 2))
    assert games[1] == 0
    np.testing.assert_allclose(games / games.sum(), [0.5, 0.0, 0.25, 0.25], atol=0.05)


def test_boards_with_the_same_opponent_share_one_forward_pass() -> None:
    bed, rng = Bed([0.0, 0.0, 0.0, 1.0], groups=2), np.random.default_rng(0)
    bed.block.reset(bed.row)
    bed.calls.clear()
    bed.step(bed.legal(rng))
    assert bed.calls
    assert len(bed.calls) <= 2 * 3, "at most one per group for the replies, and one or two for games that restarted"
    assert set(bed.calls) == {(1, 4)}


def test_a_fixed_player_moves_on_the_boards_of_all_groups_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    choose = RandomPlayer.choose

    def counted(self: RandomPlayer, game: Any, rows: Any, noise: Any) -> NDArray[np.int64]:
        asked.append(len(rows))
        return choose(self, game, rows, noise)

    monkeypatch.setattr(RandomPlayer, "choose", counted)
    bed, rng = Bed([1.0, 0.0, 0.0, 0.0], groups=4), np.random.default_rng(0)
    bed.block.reset(bed.row)
    asked.clear()
    bed.step(bed.legal(rng))
    assert asked[0] == 16


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
def test_games_of_a_group_do_not_depend_on_other_groups(epsilon: float) -> None:
    def story(bed: Bed, mine: slice) -> list[Any]:
        rows: list[Any] = []
        bed.block.reset(bed.row)
        for t in range(40):
            assert bed.row.mask is not None
            # The same choice for the same env, whatever the bed.
            action = np.array([np.flatnonzero(mask)[t % mask.sum()] for mask in bed.row.mask])
            bed.step(action)
            rows.append((bed.after.reward[mine].tolist(), bed.row.obs[PLAIN][mine].tolist()))
        return rows

    odds = [0.2, 0.2, 0.3, 0.3]
    both, alone = Bed(odds, groups=2, epsilon=epsilon), Bed(odds, groups=1, first_env=4, epsilon=epsilon)
    assert story(both, slice(4, 8)) == story(alone, slice(0, 4))


def test_game_is_restored_against_its_original_opponent() -> None:
    bed, rng = Bed([0.3, 0.1, 0.3, 0.3], epsilon=0.3), np.random.default_rng(0)
    bed.block.reset(bed.row)
    actions: list[list[int]] = [[] for _ in range(8)]
    for _ in range(7):
        action = bed.legal(rng)
        bed.step(action)
        for env in range(8):
            actions[env] = [] if bed.after.terminated[env] else [*actions[env], int(action[env])]
    assert bed.row.mask is not None
    histories = [
        History(
            episode=int(bed.episode[env]), actions=np.array(actions[env], np.int64),
            obs={PLAIN: bed.row.obs[PLAIN][env].copy()}, mask=bed.row.mask[env].copy(),
            tags={name: tag[env] for name, tag in bed.pool.tags().items()},
        )
        for env in range(8)
    ]  # fmt: skip
    other = Bed([1.0, 0.0, 0.0, 0.0])  # the odds are others by now
    assert other.block.restore(histories, other.row) == []
    np.testing.assert_array_equal(other.row.obs[PLAIN], bed.row.obs[PLAIN])
    np.testing.assert_array_equal(other.pool.opponent, bed.pool.opponent)
    other.pool.odds[:] = bed.pool.odds
    other.pool.next_epsilon[:] = bed.pool.next_epsilon
    for _ in range(20):
        action = bed.legal(rng)
        bed.step(action)
        other.step(action)
        np.testing.assert_array_equal(other.row.obs[PLAIN], bed.row.obs[PLAIN])
    wrong = [h if env != 3 else History(h.episode, h.actions, {PLAIN: h.obs[PLAIN] + 1}, h.mask, tags=h.tags)
             for env, h in enumerate(histories)]  # fmt: skip
    again = Bed([1.0, 0.0, 0.0, 0.0])
    assert again.block.restore(wrong, again.row) == [3]
    assert again.episode[3] == histories[3].episode + 1


class Rush:
    """The first player wins at once, so the other has no decision, as can happen in Ludo."""

    name, actions, obs_size = "rush", 9, 18

    def __init__(self, n: int) -> None:
        self.n = n
        self.mover, self.winner, self.over = np.zeros(n, np.int8), np.zeros(n, np.int8), np.ones(n, np.bool_)
        self.state = {"mover": self.mover, "winner": self.winner, "over": self.over}

    def reset(self, rows: NDArray[np.intp], seeds: NDArray[np.uint64]) -> None:
        self.over[rows] = False

    def play(self, rows: NDArray[np.intp], actions: NDArray[np.int64]) -> None:
        assert not self.over[rows].any()
        self.over[rows] = True

    def observe(self, rows: NDArray[np.intp], seats: Any = None) -> NDArray[np.float32]:
        return np.zeros((len(rows), 18), np.float32)

    def legal(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.ones((len(rows), 9), np.bool_)

    def text(self, row: int) -> str:
        return ""

    def move_name(self, row: int, action: int) -> str:
        return ""


def test_games_lost_without_a_decision_are_counted_and_skipped() -> None:
    bed = Bed([1.0, 0.0, 0.0, 0.0])
    game = Rush(8)
    opponents = bed.block._opponents
    block = GameBlock(game, opponents, seed=3, first_env=0, episode=bed.episode)
    block.reset(bed.row)
    for _ in range(20):
        assert not game.over.any()
        assert (block._seat == 0).all()
        block.step(np.zeros(8, np.int64), bed.row, bed.after)
        assert bed.row.terminated.all()
        assert (bed.row.reward == 1).all()
    results = bed.pool.results.sum((0, 1))
    assert results[WIN] == 20 * 8
    assert results[LOSS] > 0.5 * results[WIN], "about every other game"
    assert bed.episode.sum() == results.sum()
    env = GameEnv(Rush)
    for seed in range(20):
        _, info = env.reset(seed=seed)
        assert info["seat"] == 0


def test_a_sampled_move_is_legal_and_has_the_probability_of_the_policy() -> None:
    params = np.log(np.array([[0.5, 0.3, 0.2, 9.0]], np.float32)).repeat(40_000, 0)
    legal = np.tile([True, True, True, False], (40_000, 1))
    noise = np.random.default_rng(0).integers(0, 2**64, 40_000, np.uint64)
    share = np.bincount(sampled_move(params, legal, noise), minlength=4) / 40_000
    np.testing.assert_allclose(share, [0.5, 0.3, 0.2, 0.0], atol=0.01)
