"""Extras of a vector env are read from shared memory, without additional wake-ups or messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.simulator import Simulator

from paceline import make_vec

N, STEPS = 5, 30


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("workers", [0, 2])
def test_extras_equal_the_state_of_every_env(mode: AutoresetMode, workers: int) -> None:
    reference: Any = SyncVectorEnv([Simulator] * N, autoreset_mode=mode)
    envs: Any = make_vec(Simulator, N, workers, autoreset_mode=mode)
    try:
        for one in (reference, envs):
            one.reset(seed=3)
        woken = sum(envs.wake_ups)
        actions = np.random.default_rng(0).integers(0, 3, (STEPS, N))
        finals = 0
        for action in actions:
            *_, terminated, truncated, infos = envs.step(action)
            expected = reference.step(action)[-1]
            assert set(infos) == set(expected), "what was read is not in the infos"
            shown = envs.extras()
            assert np.array_equal(shown["true_state"], np.stack([env.unwrapped.true_state() for env in reference.envs]))
            assert np.array_equal(shown["seen"], shown["true_state"][:, 0])
            if "final_info" in infos:
                ended = np.flatnonzero(terminated | truncated)
                finals += len(ended)
                assert (infos["final_info"]["at_the_end"][ended] == shown["at_the_end"][ended]).all()
            if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
                for one in (reference, envs):
                    one.reset(options={"reset_mask": terminated | truncated})
                woken += max(1, workers)  # at most: a worker without an ended env is left alone
        assert (finals > 0) == (mode is AutoresetMode.SAME_STEP)
        assert sum(envs.wake_ups) <= woken + STEPS * max(1, workers)
    finally:
        envs.close()
