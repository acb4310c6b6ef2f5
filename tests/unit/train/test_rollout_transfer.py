"""Arrays that travel between driver and nodes for rollouts: both sides list them alike, and values arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.envs.block import History
from paceline.memory.shared import Arena
from paceline.memory.worker_status import MEMORY, NOT_FINITE
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange, pack, unpack
from paceline.train.build import build
from paceline.train.rollout_transfer import EPISODES, LEARNER_FIELDS, POOL, WEIGHTS, RolloutTransfer, SlotTransfer

HELD = GroupRange(2, 2)
"""The groups of the node: the second half of four groups of two envs."""
NODE_POOL = [Share(0, 2, 1), Share(1, 3, 1)]
IN_RUN = slice(4, 8)
"""Columns of the node's envs in the driver's arena."""


class Sides:
    """The arena of the driver and that of a node, for one algorithm."""

    def __init__(self, algo: str, **settings: Any) -> None:
        small: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 8, "group_size": 2, "n_steps": 3, "num_workers": 0}
        with closing(build(TrainConfig.from_flat(algo=algo, **{**small, **settings}))) as training:
            plan, weights = training.plan, len(training.weights.vector)
        self.transfer: Any = plan.transfer(weights)
        self.driver = Arena.create(plan.fields(weights, 2))
        self.node = Arena.create(self.transfer.fields(HELD, 2))

    def down(self, load: str) -> None:
        buffer = pack(self.transfer.down(load, self.driver, None, []))
        unpack(buffer, self.transfer.down(load, self.node, HELD, NODE_POOL))

    def up(self, command: str, *args: Any, pool: list[Share] = NODE_POOL) -> None:
        call = ExecutedCall(command, args, [None] * len(pool))
        buffer = pack(self.transfer.up(call, self.node, HELD, pool))
        unpack(buffer, self.transfer.up(call, self.driver, None, pool))

    def close(self) -> None:
        self.driver.close()
        self.node.close()


@pytest.fixture
def ppo() -> Iterator[Sides]:
    with closing(Sides("ppo", normalize_obs=True)) as sides:
        yield sides


@pytest.fixture
def impala() -> Iterator[Sides]:
    with closing(Sides("impala")) as sides:
        yield sides


def test_weights_and_statistics_arrive_with_their_version(ppo: Sides) -> None:
    ppo.driver["weights"][:] = 1.5
    ppo.driver["norm/obs"][:] = 2.5
    ppo.driver["version"][:] = 7
    ppo.down(WEIGHTS)
    assert (ppo.node["weights"] == 1.5).all()
    assert (ppo.node["norm/obs"] == 2.5).all()
    assert ppo.node["version"][0] == 7


def test_in_a_pipeline_the_copy_for_acting_is_sent() -> None:
    with closing(Sides("ppo", pipeline=True)) as sides:
        sides.driver["weights"][:] = 1.0
        sides.driver["acting/weights"][:] = 2.0
        sides.down(WEIGHTS)
        assert (sides.node["weights"] == 2.0).all()


def test_workers_of_asynchronous_algorithms_get_a_snapshot(impala: Sides) -> None:
    impala.driver["weights"][:] = 1.5
    impala.driver["version"][:] = 3
    impala.down(WEIGHTS)
    assert (impala.node["snapshots"][3 % 2] == 1.5).all()


def test_only_the_episodes_of_the_called_workers_arrive(ppo: Sides) -> None:
    ppo.driver["episode"][:] = np.arange(8) + 10
    ppo.node["episode"][:] = 0
    buffer = pack(ppo.transfer.down(EPISODES, ppo.driver, None, []))
    unpack(buffer, ppo.transfer.down(EPISODES, ppo.node, HELD, NODE_POOL[1:]))
    assert ppo.node["episode"].tolist() == [0, 0, 16, 17]


def test_opponents_of_current_episodes_arrive_on_both_sides() -> None:
    with closing(Sides("ppo", env="paceline/TicTacToe-v0", opponents={"random": 0.5, "self": 0.5})) as sides:
        sides.driver["pool/opponent"][:] = np.arange(8)
        sides.down(EPISODES)
        assert sides.node["pool/opponent"][IN_RUN].tolist() == [4, 5, 6, 7]
        sides.node["pool/opponent"][IN_RUN] = 1
        sides.up("collect", 0)
        assert sides.driver["pool/opponent"].tolist() == [0, 1, 2, 3, 1, 1, 1, 1]


def test_a_collected_rollout_arrives_in_the_columns_of_the_node(ppo: Sides) -> None:
    for name in ("obs/obs", "action", "reward", "valid", "value"):
        ppo.node[name][:] = 1
    ppo.node["episode"][:] = [5, 6, 7, 8]
    ppo.up("collect", 0)
    for name in ("obs/obs", "action", "reward", "valid", "value"):
        assert (ppo.driver[name][:, IN_RUN] == 1).all(), name
        assert not ppo.driver[name][:, :4].any(), name
    assert ppo.driver["episode"].tolist() == [0, 0, 0, 0, 5, 6, 7, 8]


def test_only_the_requested_set_of_slots_arrives(impala: Sides) -> None:
    impala.node["0/reward"][:] = 1.0
    impala.node["1/reward"][:] = 2.0
    impala.up("collect", 0, 1)
    assert (impala.driver["1/reward"][:, IN_RUN] == 2.0).all()
    assert not impala.driver["0/reward"].any()


def test_first_observations_arrive_after_a_reset(ppo: Sides, impala: Sides) -> None:
    ppo.node["obs/obs"][-1] = 4.0
    ppo.up("reset")
    assert (ppo.driver["obs/obs"][-1, IN_RUN] == 4.0).all()
    impala.node["0/obs/obs"][-1] = 4.0
    impala.up("reset")
    assert not impala.driver["0/obs/obs"].any(), "envs of asynchronous algorithms are not restored"


def test_counts_of_values_that_are_not_finite_arrive(ppo: Sides) -> None:
    ppo.node["heartbeat"][1, NOT_FINITE] = 3
    ppo.node["heartbeat"][:, MEMORY] = [64_000, 65_000]
    ppo.up("collect", 0)
    assert ppo.driver["heartbeat"][:, NOT_FINITE].tolist() == [0, 3]
    assert ppo.driver["heartbeat"][:, MEMORY].tolist() == [64_000, 65_000]


def test_loads_and_their_tokens() -> None:
    with closing(Sides("ppo", env="paceline/TicTacToe-v0", opponents={"random": 0.5, "self": 0.5})) as sides:
        transfer, arena = sides.transfer, sides.driver
        assert transfer.loads("collect") == (WEIGHTS, POOL)
        assert transfer.loads("reset") == (EPISODES, WEIGHTS, POOL)
        assert transfer.loads("dump") == ()
        assert transfer.token(EPISODES, arena, 1) is None, "sent with every call"
        assert transfer.token(WEIGHTS, arena, 1) != transfer.token(WEIGHTS, arena, 2)
        before = transfer.token(POOL, arena, 1)
        assert transfer.token(POOL, arena, 2) == before
        arena["pool/born"][0] += 5
        assert transfer.token(POOL, arena, 2) != before


def test_asynchronous_weights_are_sent_once_per_version(impala: Sides) -> None:
    transfer, arena = impala.transfer, impala.driver
    assert isinstance(transfer, SlotTransfer)
    before = transfer.token(WEIGHTS, arena, 1)
    assert transfer.token(WEIGHTS, arena, 2) == before
    arena["version"][:] += 1
    assert transfer.token(WEIGHTS, arena, 2) != before


def test_a_requested_slot_counts_as_begun_with_the_newest_weights(impala: Sides) -> None:
    impala.driver["version"][:] = 9
    impala.driver["begun_version"][:] = 0
    impala.transfer.posted(impala.driver, 1, "collect", (0, 1))
    impala.transfer.posted(impala.driver, 0, "reset", ())
    assert impala.driver["begun_version"].tolist() == [[0, 0], [0, 9]]


def test_restore_sends_only_the_histories_of_the_called_workers(ppo: Sides) -> None:
    histories = [History(env, np.zeros(0), {}, None) for env in range(8)]
    (sent,) = ppo.transfer.trimmed("restore", (histories,), NODE_POOL[1:])
    assert [None if one is None else one.episode for one in sent] == [None] * 6 + [6, 7]
    assert ppo.transfer.trimmed("collect", (3,), NODE_POOL) == (3,)


def test_a_node_reserves_no_memory_for_fields_of_the_learner(ppo: Sides) -> None:
    assert isinstance(ppo.transfer, RolloutTransfer)
    fields = [field for field in ppo.transfer.fields(HELD, 2) if field.name.startswith(LEARNER_FIELDS)]
    assert fields
    assert all(field.sparse for field in fields)
