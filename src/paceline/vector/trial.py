"""Measures the cost of an env step by taking random steps for a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from gymnasium import spaces

from paceline.envs.make import Env
from paceline.envs.make_block import SHORTEST_WAIT_S, WAITING
from paceline.measure.clock import waits_so_far
from paceline.spec import MASK_KEY

TRIAL_S = 0.5
"""Duration that measures the cost of a step."""
GLANCE_S = 0.02
"""Duration that shows whether a step waits."""
FEWEST_STEPS = 8
MOST_S = 4.0
"""Time limit for slow envs, even if `FEWEST_STEPS` are not done."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step of one env."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    waits: bool = False
    """Whether the step mostly waits (I/O, sleep) instead of computing."""


def trial(env: Env, seconds: float = TRIAL_S) -> StepCost:
    """Reset an env and time random steps.

    Errors of the env are ignored and give a cost of zero: the real envs will raise the same error with their index.

    Args:
        env: A temporary env; the caller closes it.
        seconds: Duration; extended to `FEWEST_STEPS` steps, but not beyond `MOST_S`.
    """
    try:
        _, info = env.reset()
        env.action_space.seed(0)
        env.step(_action(env, info))  # warm-up: the first step may load files
        _, info = env.reset()
        steps: list[float] = []
        ended = False
        began, cpu_began, waits_began = perf_counter(), thread_time(), waits_so_far()
        while (spent := perf_counter() - began) < seconds or (len(steps) < FEWEST_STEPS and spent < MOST_S):
            if ended:
                _, info = env.reset()
            action = _action(env, info)
            start = perf_counter()
            _, _, terminated, truncated, info = env.step(action)
            steps.append(perf_counter() - start)
            ended = bool(terminated or truncated)
    except Exception:
        return StepCost()
    wall_s, cpu_s, count = perf_counter() - began, thread_time() - cpu_began, len(steps)
    # Time off the CPU counts as waiting only with voluntary context switches; otherwise another process preempted us.
    gave_up = waits_so_far() - waits_began >= count
    waits = gave_up and cpu_s < WAITING * wall_s and wall_s - cpu_s > count * SHORTEST_WAIT_S
    # The lower quartile: slower steps were mostly delayed by other processes.
    usual_s = float(np.percentile(steps, 25))
    return StepCost(usual_s, min(usual_s, cpu_s / count) if waits else usual_s, waits)


def _action(env: Env, info: dict[str, Any]) -> Any:
    """A random action; a legal one if the env has an action mask."""
    space = env.action_space
    legal = isinstance(space, spaces.Discrete) and MASK_KEY in info
    return space.sample(np.asarray(info[MASK_KEY], np.int8)) if legal else space.sample()
