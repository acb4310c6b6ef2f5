"""The off-policy collector: replay rows, collect budgets and initial priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.games import Counter

from paceline.collect.transitions import CollectBudget, Lane, TransitionCollector
from paceline.envs.block import BlockSetup
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter
from paceline.memory.rows import Row
from paceline.memory.worker_status import heartbeat_field
from paceline.ops.exploring import EpsilonGreedy
from paceline.spec import PLAIN
from paceline.train.algorithms.dqn import _judge

GAMMA = 0.9
RECIPE = EnvRecipe(source=lambda: Counter(length=5))
SPEC = RECIPE.probe()


def actor(obs: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Action values that anybody can compute: they depend on the step alone."""
    step = obs[PLAIN][:, 2].astype(np.float32)
    n = SPEC.action.nvec[0]
    params = np.stack([step * (a + 1) for a in range(n)], 1)
    return params, step + 10.0


def blank(n: int) -> tuple[Row, Row]:
    return Row.blank(SPEC, n), Row.blank(SPEC, n)


class Bed:
    def __init__(self, *, lanes: int, groups: int = 3, size: int = 2, epsilon: float = 0.0) -> None:
        self.renewed = 0
        self.shape = ReplayShape(spec=SPEC, rows=64, groups=groups, group_size=size, priorities=True)
        n = self.shape.n_envs
        self.memory = {field.name: np.zeros(field.shape, field.dtype) for field in self.shape.fields()}
        self.replay = Replay(self.memory, self.shape, gamma=GAMMA)
        self.episode = np.zeros(n, np.int64)
        beat = np.zeros(heartbeat_field(1).shape, np.int64)[0]
        each = groups // lanes
        self.collector = TransitionCollector(
            [
                Lane(
                    make_block(
                        BlockSetup(
                            recipe=RECIPE, spec=SPEC, seed=1, first_group=first, groups=each, group_size=size,
                            episode=self.episode[first * size : (first + each) * size],
                        )
                    ),
                    ReplayWriter(self.memory, self.shape, first, each),
                    actor, EpsilonGreedy(SPEC.action.nvec[0]), blank(each * size),
                    seed=1, first_group=first, groups=each, group_size=size,
                    epsilon=np.full(each * size, epsilon, np.float32), heartbeat=beat,
                    judge=lambda *parts: _judge(*parts, dueling=True), gamma=GAMMA,
                )
                for first in range(0, groups, each)
            ],
            self.renew,
        )  # fmt: skip
        self.collector.reset([0] * groups)

    def renew(self) -> None:
        self.renewed += 1

    def collect(self, budget: CollectBudget) -> list[int]:
        written = self.collector.collect(self.replay.head.tolist(), budget)
        for group, rows in enumerate(written.rows):
            self.replay.advance(group, group + 1, rows)
        return written.rows

    def close(self) -> None:
        self.collector.close()


def test_collect_budget_counts_rows_or_episodes() -> None:
    bed = Bed(lanes=3)
    assert bed.collect(CollectBudget(rows=7)) == [7, 7, 7]
    # Two envs a group, episodes of five steps: both end in the third row from here, which makes two.
    assert bed.collect(CollectBudget(rows=50, episodes=2)) == [3, 3, 3]
    assert bed.collect(CollectBudget(rows=50, episodes=3)) == [10, 10, 10]
    assert bed.collect(CollectBudget(rows=4, episodes=3)) == [4, 4, 4], "rows is the upper limit"
    bed.close()


@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_transitions_do_not_depend_on_stepping_groups_together(epsilon: float) -> None:
    together, thread_per_env = Bed(lanes=1, epsilon=epsilon), Bed(lanes=3, epsilon=epsilon)
    for rows in (5, 20, 3):
        together.collect(CollectBudget(rows=rows))
        thread_per_env.collect(CollectBudget(rows=rows))
    for name, array in together.memory.items():
        np.testing.assert_array_equal(array, thread_per_env.memory[name], err_msg=name)
    together.close()
    thread_per_env.close()


def test_initial_priority_is_the_absolute_td_error() -> None:
    bed = Bed(lanes=1)
    for rows in (6, 9):
        bed.collect(CollectBudget(rows=rows))
    rows = 15
    for env in range(bed.shape.n_envs):
        columns = slice(env, env + 1)
        obs = bed.replay.rows("obs/obs", 0, rows + 1, columns)[:, 0]
        action = bed.replay.rows("action", 0, rows, columns)[:, 0]
        reward = bed.replay.rows("reward", 0, rows, columns)[:, 0]
        ended = bed.replay.rows("flags", 0, rows, columns)[:, 0] & 3
        said = bed.replay.rows("priority", 0, rows, columns)[:, 0]
        for t in range(rows):
            params, value = (part[0] for part in actor({PLAIN: obs[t : t + 1]}))
            after, next_value = (part[0] for part in actor({PLAIN: obs[t + 1 : t + 2]}))
            q = value + params[action[t]] - params.mean()
            best = next_value + after.max() - after.mean()
            expected = abs(reward[t] + (0.0 if ended[t] else GAMMA * best) - q)
            assert said[t] == pytest.approx(expected, rel=1e-5), (env, t)
    bed.close()


def test_the_weights_are_renewed_before_each_request() -> None:
    bed = Bed(lanes=1)
    assert bed.renewed == 0
    bed.collect(CollectBudget(rows=2))
    bed.collect(CollectBudget(rows=2))
    assert bed.renewed == 2
    bed.close()


def test_a_lane_takes_the_head_of_its_own_groups_which_must_share_one() -> None:
    apart, together = Bed(lanes=3), Bed(lanes=1)
    with pytest.raises(RuntimeError, match=r"same head row \(heads \[3, 1, 2\]\)"):
        together.collector.reset([3, 1, 2])
    apart.collector.reset([3, 1, 2])
    obs = apart.memory["replay/obs/obs"]  # [rows, B, leaf]
    assert [np.flatnonzero(obs[:, group * 2].any(1)).max() for group in range(3)] == [3, 1, 2]
    apart.close()
    together.close()
