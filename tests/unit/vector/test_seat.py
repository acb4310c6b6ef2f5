"""`Seat`: one env, its autoreset modes, and what it writes to memory."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from paceline.errors import EnvError
from paceline.vector.leaves import SpaceLeaves, obs_writer
from paceline.vector.seat import Places, Seat


class Counts(gym.Env[Any, Any]):
    """Shows the number of the step, in one array that it reuses; an episode takes two steps."""

    observation_space, action_space = spaces.Box(-9.0, 9.0, (1,), np.float32), spaces.Discrete(3)

    def __init__(self) -> None:
        self.obs, self.seeds = np.zeros(1, np.float32), list[int | None]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.obs[0] = 0
        return self.obs, {"begun": True}

    def step(self, action: Any) -> Any:
        if action == 2:
            raise RuntimeError("not today")
        self.obs[0] += 1
        return self.obs, float(action), bool(self.obs[0] == 2), False, {}


def make(mode: AutoresetMode) -> tuple[Seat, dict[str, Any]]:
    arrays: dict[str, Any] = {
        "obs": np.zeros((3, 1), np.float32),
        "reward": np.zeros(3),
        "terminated": np.zeros(3, np.bool_),
        "truncated": np.zeros(3, np.bool_),
        "beat": np.zeros(1, np.int64),
        "news": [],
    }
    write = obs_writer(SpaceLeaves.of(Counts.observation_space, "obs"), {(): arrays["obs"]})
    reward, terminated, truncated = (arrays[name].data for name in ("reward", "terminated", "truncated"))
    places = Places(write, reward, terminated, truncated, {}, arrays["beat"].data, arrays["news"])
    return Seat(Counts(), 7, 1, places, mode), arrays


def test_results_are_written_to_the_position_of_the_env() -> None:
    seat, arrays = make(AutoresetMode.NEXT_STEP)
    seat.reset({"seed": 5})
    assert seat.env.seeds == [5]  # type: ignore[attr-defined]
    assert seat.take_news() == (({"begun": True},), ())
    seat.step(1)
    assert arrays["obs"].tolist() == [[0], [1], [0]]
    assert arrays["reward"].tolist() == [0, 1, 0]
    assert arrays["beat"][0] == 2
    assert arrays["news"] == [seat], "only of the reset: a step without infos sends nothing"


def test_next_step_resets_in_the_step_after_the_end() -> None:
    seat, arrays = make(AutoresetMode.NEXT_STEP)
    seat.reset({})
    seat.step(1)
    seat.step(1)
    assert (arrays["obs"][1, 0], arrays["terminated"][1]) == (2, True)
    seat.step(1)
    assert (arrays["obs"][1, 0], arrays["reward"][1], arrays["terminated"][1]) == (0, 0, False)
    assert len(seat.env.seeds) == 2  # type: ignore[attr-defined]


def test_same_step_keeps_a_copy_of_the_final_observation() -> None:
    seat, arrays = make(AutoresetMode.SAME_STEP)
    seat.reset({})
    seat.take_news()
    seat.step(1)
    seat.step(1)
    assert (arrays["obs"][1, 0], arrays["terminated"][1]) == (0, True)
    (final, info), _ = seat.take_news()
    assert final["final_obs"].tolist() == [2]
    assert info == {"begun": True}
    seat.step(1)
    assert (arrays["obs"][1, 0], arrays["terminated"][1]) == (1, False)


def test_disabled_autoreset_does_not_reset() -> None:
    seat, arrays = make(AutoresetMode.DISABLED)
    seat.reset({})
    for _ in range(3):
        seat.step(1)
    assert arrays["obs"][1, 0] == 3
    assert len(seat.env.seeds) == 1  # type: ignore[attr-defined]


def test_errors_name_env_step_and_action() -> None:
    seat, _ = make(AutoresetMode.NEXT_STEP)
    seat.reset({})
    seat.step(0)
    with pytest.raises(EnvError, match="env 7 raised in step 2 with action 2: RuntimeError: not today"):
        seat.step(2)
    seat.env.reset = None  # type: ignore[method-assign, assignment]
    with pytest.raises(EnvError, match=r"env 7 raised in reset\(seed=3\)"):
        seat.reset({"seed": 3})
