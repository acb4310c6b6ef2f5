"""Self-play: two-player games as envs. A step is one move of the learner and the opponent's moves that follow it.

    step: the learner moves -> the opponent of each board moves -> ... -> the learner's turn again, or the game is over

Each board has one opponent per episode: a fixed player or a snapshot of the learner. The boards of a group that share
a snapshot share one forward pass. All randomness derives from (seed, env, episode), so an episode can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import FinalObs, History, Watch
from paceline.envs.game import Game, Player
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError
from paceline.memory.opponent_pool import DRAW, LOSS, WIN, OpponentPool
from paceline.memory.rows import Row
from paceline.nets.actor import Actor
from paceline.ops.distributions import legal_only
from paceline.ops.q_learning import best_legal
from paceline.ops.random_bits import draws, mix, pick, uniform
from paceline.spec import PLAIN

_MEETING, _MOVES, _SEAT = (np.uint64(stream) for stream in (0x5E1F_91A7, 0x0DD5_0FF5, 0x5EA7_5EA7))
"""Stream tags: the choice of the opponent, its moves and the learner's side each have a random stream of their own,
separate from the game's dice."""


Chooser: TypeAlias = Callable[[NDArray[np.float32], NDArray[np.bool_], NDArray[np.uint64]], NDArray[np.int64]]
"""Turns a network's outputs into moves: outputs [k, M], legal moves [k, M], random bits [k] -> one legal move each."""


def best_move(
    params: NDArray[np.float32],
    legal: NDArray[np.bool_],
    noise: NDArray[np.uint64],  # noqa: ARG001 - see `Chooser`
) -> NDArray[np.int64]:
    """The legal move with the highest Q-value: how DQN plays."""
    return best_legal(params, legal)


def sampled_move(params: NDArray[np.float32], legal: NDArray[np.bool_], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A move sampled from the policy's distribution over legal moves: how PPO plays."""
    logits = legal_only(params, legal).astype(np.float64)
    chances = np.cumsum(np.exp(logits - logits.max(1, keepdims=True)), axis=1)
    drawn: NDArray[np.int64] = (chances > (uniform(noise) * chances[:, -1])[:, None]).argmax(1)
    return drawn


class Opponents:
    """Chooses and plays the opponents: fixed players first, then snapshots. One object per worker.

    Args:
        pool: The opponent pool: sampling odds, and weights of the snapshots.
        players: The fixed players, in the pool's order.
        actors: Makes the actor of the snapshot in a given pool slot, for `group_size` rows.
        choose: Turns the outputs of a snapshot into moves.
        group_size: Envs in a group, which are the rows of a forward pass.
    """

    def __init__(
        self,
        pool: OpponentPool,
        players: Sequence[Player],
        actors: Callable[[int], Actor],
        choose: Chooser,
        group_size: int,
    ) -> None:
        self.pool, self._players, self._choose = pool, players, choose
        self._actor = cache(actors)
        self._size = group_size

    def meet(self, envs: NDArray[np.intp], keys: NDArray[np.uint64]) -> None:
        """Sample the opponents of new episodes by the pool's current odds.

        Args:
            envs: [k] the envs.
            keys: [k] random key of each episode.
        """
        odds = np.cumsum(self.pool.odds)
        place = uniform(mix(keys ^ _MEETING)) * odds[-1]
        self.pool.opponent[envs] = np.minimum(np.searchsorted(odds, place, side="right"), len(odds) - 1)
        self.pool.epsilon[envs] = self.pool.next_epsilon[0]

    def answer(
        self, game: Game, rows: NDArray[np.intp], first_env: int, noise: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Choose the opponents' moves, [k].

        All boards of a fixed player are one call; the boards of a group that share a snapshot share a forward pass.

        Args:
            game: The boards.
            rows: [k] the boards where the opponent is to move.
            first_env: The env of board 0.
            noise: [k] random bits.
        """
        count, opponent = len(self.pool.odds), self.pool.opponent[first_env + rows]
        # A fixed player's move depends on its board alone, a network's also on how many rows it computes at once.
        group = np.where(opponent < len(self._players), 0, rows // self._size)
        groups_and_opponents = group * count + opponent
        moves = np.empty(len(rows), np.int64)
        for both in np.unique(groups_and_opponents):
            mine = groups_and_opponents == both
            moves[mine] = self._move(int(both) % count, game, rows[mine], first_env, noise[mine])
        return moves

    def _move(
        self, number: int, game: Game, rows: NDArray[np.intp], first_env: int, noise: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        if number < len(self._players):
            return self._players[number].choose(game, rows, noise)
        actor = self._actor(number - len(self._players))
        # Always a whole group of rows: the last bits of a matrix product depend on the number of rows.
        seen = np.zeros((self._size, game.obs_size), np.float32)
        seen[: len(rows)] = game.observe(rows)
        legal = game.legal(rows)
        moves = self._choose(actor({PLAIN: seen})[0][: len(rows)], legal, noise)
        explore = np.flatnonzero(uniform(mix(noise)) < self.pool.epsilon[first_env + rows])
        if len(explore):
            moves[explore] = pick(legal[explore], mix(noise[explore] ^ _MOVES))
        return moves


class GameBlock:
    """The boards of some groups as an `EnvBlock`. Episodes are never truncated.

    Args:
        game: The boards, one per env.
        opponents: Play the other side.
        seed: The run's seed.
        first_env: Index in the run of the first board.
        episode: [n] episode numbers; the block writes them.
    """

    readings = None
    """Games have no extras."""

    def __init__(
        self, game: Game, opponents: Opponents, *, seed: int, first_env: int, episode: NDArray[np.int64]
    ) -> None:
        self._game, self._opponents, self.episode = game, opponents, episode
        self._seed, self._first = seed, first_env
        self._all = np.arange(game.n)
        self._seat = np.zeros(game.n, np.int8)
        self._key = np.zeros(game.n, np.uint64)
        self._moves = np.zeros(game.n, np.int64)  # moves of the opponent in this episode

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self._begin(self._all, meet=True)
        over = np.flatnonzero(self._game.over)
        self._note_results(over)
        self._begin_next(over)
        self._show(row)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Play the learner's move on every board, then the opponents' moves; finished games start again."""
        game = self._game
        game.play(self._all, action.astype(np.int64))
        self._answer(self._all)
        over = np.flatnonzero(game.over)
        row.reward.fill(0.0)
        row.valid.fill(True)
        row.truncated.fill(False)
        row.terminated[...] = game.over
        if len(over):
            row.reward[over] = self._note_results(over) - DRAW
            self._begin_next(over)
        self._show(after)
        return ()

    def _note_results(self, over: NDArray[np.intp]) -> NDArray[np.int64]:
        """Count the results of finished games in the pool; returns them from the learner's side."""
        winner = self._game.winner[over]
        result = np.where(winner < 0, DRAW, np.where(winner == self._seat[over], WIN, LOSS))
        envs, pool = self._first + over, self._opponents.pool
        pool.results[envs, pool.opponent[envs], result] += 1
        return result

    def _begin_next(self, rows: NDArray[np.intp]) -> None:
        """Start the next game of some envs.

        In Ludo a game can end before the learner has a decision to make: a player who never rolls a six never moves.
        Such a game has no transition to learn from, so it is counted and the next one starts at once.
        """
        while len(rows):
            self.episode[rows] += 1
            self._begin(rows, meet=True)
            rows = rows[self._game.over[rows]]
            self._note_results(rows)

    def restore(self, histories: Sequence[History], row: Row, _watch: Watch | None = None, /) -> list[int]:
        """Replay every game against its original opponent, and compare the resulting boards bit for bit.

        Returns:
            The envs whose replay differs; they have started a new game.
        """
        self.episode[:] = [history.episode for history in histories]
        mine, pool = slice(self._first, self._first + self._game.n), self._opponents.pool
        for name, tag in pool.tags().items():
            tag[mine] = [history.tags[name] for history in histories]
        self._begin(self._all, meet=False)
        lengths = np.array([len(history.actions) for history in histories])
        lost = np.zeros(self._game.n, np.bool_)
        for t in range(int(lengths.max(initial=0))):
            rows = np.flatnonzero((lengths > t) & ~self._game.over)
            moves = np.array([histories[int(i)].actions[t] for i in rows], np.int64)
            legal = self._game.legal(rows)[np.arange(len(rows)), moves]
            lost[rows[~legal]] = True
            lengths[rows[~legal]] = t
            self._game.play(rows[legal], moves[legal])
            self._answer(rows[legal])
        lost |= self._game.over
        self._show(row, where=~lost)
        for i, history in enumerate(histories):
            same = row.obs[PLAIN][i].tobytes() == history.obs[PLAIN].tobytes()
            lost[i] |= not same or history.mask is None or not np.array_equal(row.mask[i], history.mask)  # type: ignore[index]
        restarted = np.flatnonzero(lost)
        self._begin_next(restarted)
        self._show(row)
        return [int(i) for i in restarted]

    def dump(self) -> list[bytes]:
        """Empty entries: games need no pickled state, since replaying restores them exactly."""
        return [b""] * self._game.n

    def close(self) -> None:
        """Close the boards, if the game has a `close` method (PettingZoo envs do)."""
        close = getattr(self._game, "close", None)
        if close is not None:
            close()

    def _begin(self, rows: NDArray[np.intp], *, meet: bool) -> None:
        """Start the games numbered in `episode`.

        Args:
            rows: The boards.
            meet: Sample a new opponent for each; otherwise keep the opponent it has.
        """
        if not len(rows):
            return
        seeds = np.array(
            [episode_seed(self._seed, self._first + int(i), int(self.episode[i])) for i in rows], np.uint64
        )
        self._key[rows] = keys = mix(seeds)
        self._seat[rows] = (mix(keys ^ _SEAT) >> np.uint64(63)).astype(np.int8)
        self._moves[rows] = 0
        if meet:
            self._opponents.meet(self._first + rows, keys)
        self._game.reset(rows, keys)
        self._answer(rows)

    def _answer(self, rows: NDArray[np.intp]) -> None:
        """Play the opponents' moves until on every board it is the learner's turn or the game is over."""
        game = self._game
        while True:
            rows = rows[~game.over[rows] & (game.mover[rows] != self._seat[rows])]
            if not len(rows):
                return
            noise = draws(mix(self._key[rows] ^ _MOVES), self._moves[rows])
            self._moves[rows] += 1
            game.play(rows, self._opponents.answer(game, rows, self._first, noise))

    def _show(self, row: Row, where: NDArray[np.bool_] | None = None) -> None:
        rows = self._all if where is None else np.flatnonzero(where)
        row.obs[PLAIN][rows] = self._game.observe(rows)
        if row.mask is None:
            raise ConfigError("game: the env has no action mask. Return the legal moves as info['action_mask'].")
        row.mask[rows] = self._game.legal(rows)
