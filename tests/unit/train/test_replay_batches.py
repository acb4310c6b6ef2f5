"""The batch schedule of DQN."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.inside import inside

from paceline import DQN

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


def test_groups_are_aligned_after_external_transitions() -> None:
    steps = [(np.full(4, t / 40), t % 2, 1.0, np.full(4, (t + 1) / 40), t == 39) for t in range(40)]
    hashes = []
    for workers in (0, 2):
        with DQN("CartPole-v1", num_workers=workers, n_steps=16, seed=3, **SMALL) as agent:
            agent.add_trajectory(steps)
            agent.learn(512)
            assert agent.summary is not None
            assert agent.summary.steps == 512
            replay = inside(agent._started()).rollouts._ingest.replay
            assert replay.head.tolist() == [10 + 64] * 2
            assert replay.valid(np.arange(74 * 8)).sum() == 40 + 512
            hashes.append(agent.get_weights().tobytes())
    assert hashes[0] == hashes[1]
