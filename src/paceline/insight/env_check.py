"""Checks by name what an env returns, and how it obeys its seed: the rules of `paceline check --env`.

    spaces --> episodes of random legal actions --> the same seed again, other seeds --> Gymnasium's own check_env

Every broken rule is reported once, with the first value that breaks it and what to change.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import env_checker
from numpy.typing import NDArray

from paceline.envs.make import Env, EnvRecipe, describe
from paceline.envs.step_cost import legal_action
from paceline.spec import MASK_KEY

MOST_STEPS = 10_000
"""Random steps after which an env counts as never ending an episode."""
MOST_S = 10.0
"""Time limit of the random steps, for slow envs."""
EPISODES = 5
"""Random episodes, if they end."""
REPLAYED = 50
"""Steps that are compared when a seed is used again; fewer of a slow env, but at least two."""
SEEDS = range(4)
TRAJECTORIES = 4 + 2 * len(SEEDS)
"""Most trajectories that are compared."""

KNOWN = re.compile("is -?infinity|symmetric and normalized")
"""Gymnasium's warnings that are left out: infinite bounds of observations do no harm here, and `action range` is a rule
of this module."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that the env breaks."""

    rule: str
    text: str
    """The value that breaks it, and what to change."""
    wrong: bool = True
    """Whether training would learn something wrong, or not what was asked for. Otherwise it is a hint."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Findings:
    """The first finding of each rule."""

    def __init__(self) -> None:
        self._first: dict[str, Finding] = {}

    def add(self, rule: str, text: str, *, wrong: bool = True) -> None:
        """Keep the finding, unless there is one of the same rule."""
        self._first.setdefault(rule, Finding(rule, text, wrong))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._first.values())

    @property
    def wrong(self) -> bool:
        """Whether a rule is broken."""
        return any(one.wrong for one in self)


class _Unplayable(Exception):
    """A result has another form than Gymnasium's, so the env cannot be played on."""


def check_env(recipe: EnvRecipe) -> list[Finding]:
    """Play in new envs and return the broken rules. Blocks for twice `MOST_S` at most, plus a few steps.

    Args:
        recipe: How to make the env. Its spaces are supported: `recipe.probe` has passed.
    """
    found = Findings()
    with closing(recipe.make()) as env:
        _check_space(env.observation_space, "observation", found)
        _check_actions(env.action_space, found)
        try:
            step_s = _check_episodes(env, found)
        except _Unplayable:
            return list(found)
    _check_seed(recipe, found, max(2, min(REPLAYED, int(MOST_S / TRAJECTORIES / step_s))))
    if not found.wrong:
        _ask_gymnasium(recipe, found)
    return list(found)


def _check_space(space: spaces.Space[Any], name: str, found: Findings) -> None:
    """Find images that would be treated as vectors."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            _check_space(part, f"{name}[{key!r}]", found)
    elif isinstance(space, spaces.Box) and len(space.shape or ()) == 3:
        if space.dtype != np.uint8:
            found.add(
                "image dtype",
                f"{name} has the shape of an image, {space.shape}, but is {space.dtype}: an MLP sees its flat numbers. "
                "Return pixels as uint8 from 0 to 255, or pass a network of your own (--policy).",
                wrong=False,
            )
        elif (space.low != 0).any() or (space.high != 255).any():
            found.add(
                "image bounds",
                f"{name} is uint8, but its bounds are not 0 and 255, by which a CNN divides. Use Box(0, 255, ...).",
                wrong=False,
            )


def _check_actions(space: spaces.Space[Any], found: Findings) -> None:
    """Find continuous actions whose range is not what a new policy covers."""
    if isinstance(space, spaces.Box) and ((space.low != -1).any() or (space.high != 1).any()):
        found.add(
            "action range",
            f"actions go from {space.low.min()} to {space.high.max()}. A new policy draws them around 0 with a "
            "standard deviation of 1, clipped to the range. Best is a range from -1 to 1, which the env scales itself.",
            wrong=False,
        )


def _check_episodes(env: Env, found: Findings) -> float:
    """Play random episodes; returns the seconds of a step."""
    env.action_space.seed(0)
    began, steps, ends = perf_counter(), 0, list[tuple[int, bool]]()
    for episode in range(EPISODES):
        obs, info = _start(env, found, seed=0 if episode == 0 else None)
        _check_obs(env.observation_space, obs, "observation", f"after reset {episode + 1}", found)
        for length in range(1, MOST_STEPS + 1):
            obs, _, terminated, truncated, info = _step(env, legal_action(env.action_space, obs, info), found)
            _check_obs(env.observation_space, obs, "observation", f"in step {length} of episode {episode + 1}", found)
            steps += 1
            if terminated or truncated:
                ends.append((length, bool(terminated)))
                break
            if steps >= MOST_STEPS or perf_counter() - began > MOST_S:
                break
        if steps >= MOST_STEPS or perf_counter() - began > MOST_S:
            break
    _check_ends(env, ends, steps, found)
    return (perf_counter() - began) / steps


def _check_ends(env: Env, ends: list[tuple[int, bool]], steps: int, found: Findings) -> None:
    """Look at the lengths of the episodes, and at whether they terminated."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    if not ends and limit is None:
        found.add(
            "episode end",
            f"no episode ended in {steps:,} random steps, so there may be no returns to learn from. Return "
            "truncated=True after a number of steps. A registered env also takes --env-kwargs max_episode_steps=1000.",
            wrong=False,
        )
    if len(ends) == EPISODES and len(set(ends)) == 1 and ends[0][1] and ends[0][0] > 1:
        found.add(
            "time limit",
            f"{EPISODES} random episodes all terminated after {ends[0][0]} steps. If that is a time limit, return "
            "truncated=True and terminated=False: the value of the last state then counts.",
            wrong=False,
        )


def _start(env: Env, found: Findings, **how: Any) -> tuple[Any, dict[str, Any]]:
    result = env.reset(**how)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        found.add("reset result", f"reset must return (obs, info) with a dict (got {_shown(result)}).")
        raise _Unplayable
    return result


def _step(env: Env, action: Any, found: Findings) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    result = env.step(action)
    if not isinstance(result, tuple) or len(result) != 5:
        found.add("step result", f"step must return (obs, reward, terminated, truncated, info) (got {_shown(result)}).")
        raise _Unplayable
    obs, reward, terminated, truncated, info = result
    if not isinstance(info, dict):
        found.add("step result", f"the info of step must be a dict (got {_shown(info)}).")
        raise _Unplayable
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            found.add("done flags", f"{name} must be a bool (got {_shown(flag)}). Write bool({name}).")
    if isinstance(reward, bool) or not isinstance(reward, int | float | np.integer | np.floating):
        found.add("reward type", f"a reward must be a number (got {_shown(reward)}). Write float(reward).")
    elif not math.isfinite(reward):
        found.add("reward value", f"a reward is {reward}. Make it finite: one such reward ruins the weights.")
    return obs, reward, terminated, truncated, info


def _check_obs(space: spaces.Space[Any], value: Any, name: str, when: str, found: Findings) -> None:
    """Compare an observation, leaf by leaf, with its space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space.spaces):
            keys = sorted(value) if isinstance(value, dict) else _shown(value)
            found.add("observation keys", f"{name} must be a dict with the keys {sorted(space.spaces)} (got {keys}).")
            return
        for key, part in space.spaces.items():
            _check_obs(part, value[key], f"{name}[{key!r}]", when, found)
    elif not isinstance(space, spaces.Box):
        if not space.contains(value):
            found.add("observation value", f"{name} must be one of {space} (got {_shown(value)} {when}).")
    elif not isinstance(value, np.ndarray | np.generic):
        found.add("observation type", f"{name} must be a numpy array (got {_shown(value)}). Write np.array(...).")
    elif value.shape != space.shape:
        found.add(
            "observation shape",
            f"{name} must have shape {space.shape} (got {value.shape} {when}). Make the space and the array agree.",
        )
    else:
        _check_box(space, value, name, when, found)


def _check_box(space: spaces.Box, value: Any, name: str, when: str, found: Findings) -> None:
    if not np.can_cast(value.dtype, space.dtype):
        found.add(
            "observation dtype",
            f"{name} must be {space.dtype}, as in its Box (got {value.dtype}). Write .astype(np.{space.dtype}).",
        )
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        found.add("observation finite", f"{name} has a NaN or an infinity {when}. Find where it comes from.")
        return
    outside = (value < space.low) | (value > space.high)
    if outside.any():
        at = np.unravel_index(int(np.argmax(outside)), space.shape)
        found.add(
            "observation bounds",
            f"{name}{[int(i) for i in at] if at else ''} is {value[at]} {when}, outside its Box, which goes from "
            f"{space.low[at]} to {space.high[at]}. Widen the Box, or scale the observation.",
        )


def _check_seed(recipe: EnvRecipe, found: Findings, steps: int) -> None:
    """Compare trajectories of a few steps: with the same seed they must be equal, with other seeds differ if any do."""
    with closing(recipe.make()) as one, closing(recipe.make()) as other:
        nondeterministic = one.spec is not None and one.spec.nondeterministic
        first = _trajectory(one, 0, steps)
        if any(_differ(first, again) for again in (_trajectory(one, 0, steps), _trajectory(other, 0, steps))):
            found.add(
                "seed",
                "two episodes from reset(seed=0) with the same actions differ, so neither runs nor resumes can be "
                "repeated. Call super().reset(seed=seed), and draw random numbers from self.np_random only.",
                wrong=not nondeterministic,
            )
            return
        if not any(_differ(first, _trajectory(other, seed, steps)) for seed in SEEDS):
            _trajectory(one, 0, steps)
            if any(_differ(first, _trajectory(one, None, steps)) for _ in SEEDS):
                found.add(
                    "seed effect",
                    "episodes differ, but not by the seed: reset(seed=0), reset(seed=1), ... start the same episode, "
                    "and all envs of a run would play it. Call super().reset(seed=seed), and draw random numbers from "
                    "self.np_random only.",
                )


def _trajectory(env: Env, seed: int | None, steps: int) -> list[NDArray[Any]]:
    """What the first steps of an episode return for actions that are always the same."""
    obs, info = env.reset(seed=seed)
    env.action_space.seed(0)
    seen = list(_arrays(obs))
    for _ in range(steps):
        obs, reward, terminated, truncated, info = env.step(legal_action(env.action_space, obs, info))
        for value in (obs, reward, terminated, truncated):
            seen += _arrays(value)
        if terminated or truncated:
            break
    return seen


def _differ(one: list[NDArray[Any]], other: list[NDArray[Any]]) -> bool:
    return len(one) != len(other) or not all(map(np.array_equal, one, other))


def _arrays(value: Any) -> Iterator[NDArray[Any]]:
    """Copies of the leaves, to compare later, without NaN, which does not equal itself."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _arrays(value[key])
        return
    array = np.array(value)
    yield np.nan_to_num(array) if array.dtype.kind == "f" else array


def _ask_gymnasium(recipe: EnvRecipe, found: Findings) -> None:
    """Add what only Gymnasium's own checker finds. Its actions are not legal in an env with masks."""
    with closing(recipe.make()) as env:
        obs, info = env.reset(seed=0)
        if MASK_KEY in info or (isinstance(obs, dict) and MASK_KEY in obs):
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                env_checker.check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
            except Exception as error:
                found.add("gymnasium check_env", describe(error), wrong=False)
        texts = [re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).removeprefix("WARN: ") for warning in caught]
        for number, text in enumerate((text for text in texts if not KNOWN.search(text)), 1):
            found.add(f"gymnasium check_env, warning {number}", text, wrong=False)


def _shown(value: Any) -> str:
    """A short description of a value: its type, and its text if that is short."""
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 60 and "\n" not in text else type(value).__name__
