"""Small envs with known behaviour, and rows to step them into."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from paceline.envs.block import BlockSetup, FinalObs
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.memory.rows import Row
from paceline.spec import EnvSpec

Obs = Any


class SpaceEnv(gym.Env[Any, Any]):
    """Shows samples of its observation space and remembers every action and seed it was given."""

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        length: int = 5,
        terminates: bool = False,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.length, self.terminates, self.elapsed = length, terminates, 0
        self.taken: list[Any] = []
        self.seeds: list[int | None] = []
        self.shown: list[Any] = []
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.seeds.append(seed)
        self.elapsed = 0
        return self.look(), self.info()

    def step(self, action: Any) -> tuple[Obs, Any, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        self.elapsed += 1
        over = self.elapsed >= self.length
        return self.look(), float(self.elapsed), over and self.terminates, over and not self.terminates, self.info()

    def look(self) -> Obs:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]

    def info(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.closed += 1


class ReusingEnv(SpaceEnv):
    """Returns the same array each time, overwritten in place; also scribbles over it while resetting."""

    def __init__(self, length: int = 3) -> None:
        super().__init__(length=length)
        self.array = np.zeros(3, np.float32)
        self.count = 0.0

    def look(self) -> Obs:
        self.count += 1.0
        self.array[:] = self.count
        return self.array


class Walk(gym.Env[Any, Any]):
    """Episodes drawn at reset, whatever the actions: how long, how they end, what is seen, what is legal."""

    def __init__(self, dict_obs: bool = False, masked: bool = False) -> None:
        box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": spaces.Dict({"c": box})}) if dict_obs else box
        self.action_space = spaces.Discrete(3)
        self.dict_obs, self.masked = dict_obs, masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 6))
        self.dies = bool(self.np_random.random() < 0.4)
        return self.look()

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        over = self.left == 0
        obs, info = self.look()
        if over and self.masked:
            info = {"action_mask": np.zeros(3, np.int8)}  # Nothing is legal when the episode is over.
        return obs, float(self.np_random.random()), over and self.dies, over and not self.dies, info

    def look(self) -> tuple[Obs, dict[str, Any]]:
        seen = self.np_random.random(2).astype(np.float32)
        info = {"action_mask": np.array([1, seen[0] < 0.5, 0], np.int8)} if self.masked else {}
        return ({"a": seen, "b": {"c": seen * 2}} if self.dict_obs else seen), info


class StackedFinals(SyncVectorEnv):
    """A vector env that gives last observations as stacked arrays instead of an array of objects."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, infos = super().step(actions)
        if "final_obs" in infos:
            zero = self.single_observation_space.sample()
            each = [zero if one is None else one for one in infos["final_obs"]]
            infos["final_obs"] = _stack(each)
        return obs, reward, terminated, truncated, infos


class IndependentWalks(SyncVectorEnv):
    """A vector env of walks that declares that each has a random stream of its own."""

    metadata = {**SyncVectorEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP, "same_as_single_envs": True}  # noqa: RUF012

    def __init__(self, num_envs: int, mode: str = "SameStep", **kwargs: Any) -> None:
        super().__init__([lambda: Walk(**kwargs)] * num_envs, autoreset_mode=AutoresetMode(mode))


def _stack(each: list[Any]) -> Any:
    if isinstance(each[0], dict):
        return {key: _stack([one[key] for one in each]) for key in each[0]}
    return np.stack(each)


def walks(num_envs: int, mode: str = "NextStep", stacked: bool = False, **kwargs: Any) -> SyncVectorEnv:
    kind = StackedFinals if stacked else SyncVectorEnv
    kwargs.pop("max_episode_steps", None)
    return kind([lambda: Walk(**kwargs)] * num_envs, autoreset_mode=AutoresetMode(mode))


def register(env_id: str, **kwargs: Any) -> str:
    if env_id not in gym.registry:
        gym.register(env_id, **kwargs)
    return env_id


WALK = register("toys/Walk-v0", entry_point=Walk, vector_entry_point=walks)
INDEPENDENT = register("toys/Independent-v0", entry_point=Walk, vector_entry_point=IndependentWalks)
WALK_NATIVE_ONLY = register("toys/WalkNative-v0", vector_entry_point=walks)


class Goal(Walk):
    """Judges its episodes: those that end at an even number of steps reach their goal, those of length 3 are not."""

    def __init__(self, mode: str = "", judges: bool = True) -> None:
        """Mode is an argument of the vector env."""
        super().__init__()
        self.judges = judges

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.length = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.length += 1
        obs, reward, terminated, truncated, info = super().step(action)
        judged = self.judges and self.length != 3
        return obs, reward, terminated, truncated, {**info, "is_success": self.length % 2 == 0} if judged else info


def goals(num_envs: int, mode: str = "NextStep", judges: bool = True, **_: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Goal(judges=judges)] * num_envs, autoreset_mode=AutoresetMode(mode))


GOAL = register("toys/Goal-v0", entry_point=Goal, vector_entry_point=goals)


def blank_row(spec: EnvSpec, n: int) -> Row:
    """A row full of nonsense, so that whatever is not written shows."""
    return Row(
        obs={leaf.name: np.full((n, *leaf.shape), 77, leaf.dtype) for leaf in spec.obs},
        mask=np.zeros((n, spec.action.mask_size), np.bool_) if spec.masked else None,
        action=np.zeros((n, *spec.action.shape), spec.action.dtype),
        reward=np.full(n, 77, np.float32),
        terminated=np.ones(n, np.bool_),
        truncated=np.ones(n, np.bool_),
        valid=np.zeros(n, np.bool_),
        log_prob=np.zeros(n, np.float32),
        value=np.zeros(n, np.float32),
        success=np.full(n, 77, np.int8),
        extras={name: np.full((n, *extra.shape), 77, extra.dtype) for name, extra in spec.extras.items()},
    )


def single(
    source: str | Callable[..., gym.Env[Any, Any]], n: int = 2, *, seed: int = 7, first_env: int = 0, **kwargs: Any
) -> tuple[SingleEnvs, EnvSpec, NDArray[np.int64]]:
    recipe = EnvRecipe(source=source, native_vector="never", **kwargs)
    spec = recipe.probe()
    episode = np.zeros(n, np.int64)
    return SingleEnvs(of_singles(recipe, spec, seed, first_env, episode)), spec, episode


def of_singles(
    recipe: EnvRecipe,
    spec: EnvSpec,
    seed: int,
    first_env: int,
    episode: NDArray[np.int64],
    line: NDArray[np.int64] | None = None,
) -> BlockSetup:
    """Envs from `first_env` on, one for each entry of `episode`."""
    return BlockSetup(
        recipe=recipe,
        spec=spec,
        seed=seed,
        first_group=first_env,
        groups=len(episode),
        group_size=1,
        episode=episode,
        line=line,
    )


def of_groups(
    recipe: EnvRecipe, spec: EnvSpec, *, seed: int = 0, first_group: int = 0, groups: int = 1, group_size: int = 1
) -> BlockSetup:
    """Envs of some groups, in their first episode."""
    return BlockSetup(
        recipe=recipe,
        spec=spec,
        seed=seed,
        first_group=first_group,
        groups=groups,
        group_size=group_size,
        episode=np.zeros(groups * group_size, np.int64),
    )


def play(
    block: Any, spec: EnvSpec, n: int, steps: int, act: Callable[[int], NDArray[Any]] | None = None
) -> tuple[list[Row], list[FinalObs]]:
    """Reset and step a block; rows keep the actions they were stepped with."""
    rows = [blank_row(spec, n) for _ in range(steps + 1)]
    block.reset(rows[0])
    return rows, advance(block, rows, act)


def advance(block: Any, rows: list[Row], act: Callable[[int], NDArray[Any]] | None = None) -> list[FinalObs]:
    finals = []
    for t, (row, after) in enumerate(itertools.pairwise(rows)):
        if act is not None:
            row.action[...] = act(t)
        finals.append(block.step(row.action, row, after))
    return finals
