"""Measures what a step of an env costs: its wall time, its CPU time, and whether it mostly waits (sleep, I/O).

step_cost(env)       random steps of an env                                   make_vec
wait_s(recipe)       the same for a temporary env; how long a step waits      workers
measure_steps(f)     any function that steps envs, such as a small rollout    train/layout.py
threads_for(...)     turns the result into a number of env threads            all of them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces

from paceline.envs.make import Env, EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.measure.clock import waits_so_far
from paceline.spec import MASK_KEY
from paceline.system.one_core import roaming

EnvThreads: TypeAlias = int | Literal["auto"]
"""The setting `env_threads`: how many envs a process steps at the same time."""

MOST_THREADS = 64
"""Most threads per process with `auto`."""
WAITING = 0.5
"""A step waits rather than computes if its CPU time is below this fraction of its wall time."""
SHORTEST_WAIT_S = 2e-4
"""Shorter waits do not count: handing a step to a thread costs 20 to 50 microseconds."""
FEWEST_STEPS = 8
"""Steps of a trial, unless they take longer than `MOST_S`."""
GLANCE_S = 0.02
"""Duration of a trial that only finds out whether a step waits."""
MOST_S = 1.0
"""Time limit for the trial of a slow env."""
TRIAL_ENV = 2**31 - 1
"""Env index of the trial. No env of a run has this index, so the trial repeats none of the run's episodes."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether the step mostly waits instead of computing, and for long enough that threads can help."""
        return self.cpu_s < WAITING * self.wall_s and self.wall_s - self.cpu_s > SHORTEST_WAIT_S

    @property
    def wait_s(self) -> float:
        """Seconds that the step waits; 0 unless it mostly waits."""
        return self.wall_s - self.cpu_s if self.waits else 0.0


def threads_for(n: int, waits: float, asked: EnvThreads = "auto") -> int:
    """Choose the number of threads that step n envs of one process.

    Args:
        n: Number of envs.
        waits: Nonzero if a step waits: threads then step the envs at the same time. Only read with `auto`.
        asked: The user's setting.
    """
    if asked == "auto":
        asked = MOST_THREADS if waits else 1
    return min(asked, n)


def measure_steps(
    step: Callable[[], float],
    seconds: float,
    *,
    fewest: int = FEWEST_STEPS,
    most_s: float = MOST_S,
    steps_per_call: int = 1,
) -> StepCost:
    """Call a function that steps envs, again and again, and return what one step costs. Blocks for `seconds`.

    Args:
        step: Takes the steps of one call; returns the seconds of the call that the CPU spent on something else than
            the envs. Its errors are raised.
        seconds: Duration of the measurement.
        fewest: Calls to make even if they take longer than `seconds`.
        most_s: Time limit that holds even then.
        steps_per_call: Steps that one call takes.
    """
    wall_s: list[float] = []
    cpu_s: list[float] = []
    waits, began, spent = waits_so_far(), perf_counter(), 0.0
    while spent < most_s and (spent < seconds or len(wall_s) < fewest):
        # CPU time of the whole process: an env that computes in threads of its own computes.
        cpu, start = process_time(), perf_counter()
        other_s = step()
        end = perf_counter()
        wall_s.append(end - start - other_s)
        cpu_s.append(process_time() - cpu - other_s)
        spent = end - began
    # The lower quartile: slower steps were mostly delayed by other processes.
    wall, cpu = (float(np.percentile(times, 25)) / steps_per_call for times in (wall_s, cpu_s))
    # Time off the CPU counts as waiting only with voluntary context switches; otherwise another process preempted us.
    gave_up = waits_so_far() - waits >= steps_per_call * len(wall_s)
    return StepCost(wall, min(wall, max(0.0, cpu)) if gave_up else wall)


def step_cost(env: Env, seconds: float = GLANCE_S, *, seed: int | None = None) -> StepCost:
    """Reset an env and measure random legal steps, with the resets that they need.

    Errors of the env are ignored and give a cost of zero: the real envs will raise the same error with their index.

    Args:
        env: A temporary env; the caller closes it.
        seconds: Duration; longer for a slow env, see `FEWEST_STEPS` and `MOST_S`.
        seed: Seed of its first reset.
    """
    obs: Any = None
    info: dict[str, Any] | None = None

    def reset(**how: Any) -> None:
        nonlocal obs, info
        obs, info = roaming(env.reset, **how)

    def step() -> float:
        nonlocal obs, info
        start = perf_counter()
        action = legal_action(env.action_space, obs, info)
        sampling_s = perf_counter() - start
        obs, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            reset()
        return sampling_s

    try:
        env.action_space.seed(0)
        reset(seed=seed)
        step()  # warm-up: the first step may load files
        return measure_steps(step, seconds)
    except Exception:
        return StepCost()


def wait_s(recipe: EnvRecipe, *, seed: int) -> float:
    """Make a temporary env and measure how many seconds of a step it waits; 0 if a step mostly computes.

    An env that fails in the trial counts as computing: the run's own envs will raise the error with their index.

    Args:
        recipe: How to make the env.
        seed: The run's seed.
    """
    try:
        with closing(recipe.make()) as env:
            return step_cost(env, seed=episode_seed(seed, TRIAL_ENV, 0)).wait_s
    except Exception:
        return 0.0


def legal_action(space: spaces.Space[Any], obs: Any, info: dict[str, Any] | None) -> Any:
    """A random action that the action mask, if there is one, allows."""
    mask = (info or {}).get(MASK_KEY, obs.get(MASK_KEY) if isinstance(obs, Mapping) else None)
    if mask is None:
        return space.sample()
    if isinstance(space, spaces.MultiDiscrete):
        flat = np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple | list) else np.ravel(mask)
        parts = np.split(flat.astype(np.int8), np.cumsum(space.nvec)[:-1])
        return space.sample(mask=tuple(parts))
    return space.sample(mask=np.asarray(mask, np.int8))
