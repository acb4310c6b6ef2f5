"""Names, shapes and dtypes of observations and actions, read from gymnasium spaces.

An observation is stored as leaves: one leaf named `obs` for a plain space, one leaf per key
(nested keys joined by `/`) for a Dict space. All later code (slots, nets, the learner)
iterates over leaves and never looks at a space again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.errors import ConfigError

ActionKind = Literal["categorical", "multi_categorical", "bernoulli", "gaussian"]
LeafKind = Literal["vector", "image", "categorical", "multi_categorical", "binary"]

MASK_KEY = "action_mask"
"""Key of the action mask (legal actions): in the info dict, or in a Dict observation."""

SUCCESS_KEY = "is_success"
"""Key in the info dict of an episode's last step: whether the episode reached its goal."""
FAILED, SUCCEEDED = 1, 2
"""What an env says there; 0 if it says nothing."""

PLAIN = "obs"
"""The leaf name of an observation that is not a Dict."""

ENV_REWARD = "env_reward"
"""Name of the env's own, unshaped reward where a reward shaper is used."""


@dataclass(frozen=True, slots=True)
class Extra:
    """One array that is read beside the observation, such as a simulator's true state."""

    shape: tuple[int, ...] = ()
    """Shape for one env."""
    dtype: str = "float32"
    """Numpy dtype name."""
    read: str = ""
    """Name of the env method that returns the array (a native vector env returns the arrays of all envs, stacked).
    If empty, the array is read from the info dict under the extra's own name."""
    every: int | Literal["episode"] = 1
    """Read after the reset and after every k-th step of an episode, or with `"episode"` only at the end of the episode.
    Between two reads the last value is kept."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid interval or dtype."""
        if self.every != "episode" and (not isinstance(self.every, int) or self.every < 1):
            raise ConfigError(
                f"extra: every={self.every!r} must be at least 1 (steps), or 'episode'. Use 1 for every step."
            )
        try:
            np.dtype(self.dtype)
        except TypeError as error:
            raise ConfigError(
                f"extra: dtype={self.dtype!r} must be a numpy dtype name. Use one like 'float32'."
            ) from error


@dataclass(frozen=True, slots=True)
class Shaping:
    """Names of the numbers that a reward shaper reports for every step."""

    parts: tuple[str, ...]
    """Terms that are added to the reward; their sum over an episode is logged."""
    measures: tuple[str, ...] = ()
    """Numbers that are only logged, with their value at the end of an episode."""

    @property
    def reward_parts(self) -> tuple[str, ...]:
        """All reported numbers, the env's own reward first."""
        return (ENV_REWARD, *self.parts, *self.measures)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One named array of the observation."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    kind: LeafKind
    nvec: tuple[int, ...] = ()
    """Category counts of a categorical leaf, else empty."""
    start: int = 0
    """Smallest value of a Discrete leaf."""
    path: tuple[str, ...] = ()
    """Keys under which a raw observation has it; empty if the observation is not a Dict."""

    def of(self, obs: Any) -> Any:
        """Return this leaf of a raw observation."""
        for key in self.path:
            obs = obs[key]
        return obs

    @property
    def features(self) -> int:
        """Width after flattening, with categories one-hot encoded."""
        return sum(self.nvec) if self.nvec else math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """How an action is stored, sampled and masked."""

    kind: ActionKind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    param_size: int
    """Width of the policy's output: logits, or means and log standard deviations."""
    nvec: tuple[int, ...] = ()
    """Category counts: (n,) for Discrete, one each for MultiDiscrete."""
    start: int = 0
    """Smallest action of a Discrete space; stored actions count from zero."""
    low: NDArray[np.float32] | None = None
    high: NDArray[np.float32] | None = None

    @property
    def mask_size(self) -> int:
        """Width of an action mask over this space; 0 for spaces that cannot be masked."""
        return sum(self.nvec)

    @property
    def noise_size(self) -> int:
        """How many random numbers one action needs: uniform (categories, bits) or normal (gaussian)."""
        return self.mask_size or math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Everything that the rest of the program needs to know about an env."""

    obs: tuple[Leaf, ...]
    action: ActionSpec
    masked: bool
    """Whether every step provides an action mask."""
    dict_obs: bool
    """Whether the policy receives a dict of leaves (True) or the single leaf itself (False)."""
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    extras: Mapping[str, Extra] = field(default_factory=dict)
    """Arrays that are read beside the observation, by name."""
    shaping: Shaping | None = None
    """What the reward shaper reports; None without a shaper."""

    @property
    def reward_parts(self) -> tuple[str, ...]:
        """Names of the numbers stored for every step besides the reward (empty without a reward shaper)."""
        return () if self.shaping is None else self.shaping.reward_parts

    @property
    def has_image(self) -> bool:
        """Whether an image is part of the observation."""
        return any(leaf.kind == "image" for leaf in self.obs)

    @classmethod
    def of(
        cls, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, masked: bool = False
    ) -> EnvSpec:
        """Read the spaces of a single env.

        Args:
            observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
            action_space: Discrete, MultiDiscrete, MultiBinary or Box.
            masked: Whether the env's infos contain `action_mask`. A Dict observation with that key sets this too.
        """
        action = _action_spec(action_space)
        if not action.param_size:
            raise ConfigError(f"action space {action_space}: is empty. Give it at least one action dimension.")
        leaves = tuple(_leaves(observation_space))
        in_obs = [leaf for leaf in leaves if leaf.name == MASK_KEY]
        masked = masked or bool(in_obs)
        if masked and not action.mask_size:
            raise ConfigError(
                f"action_mask: supported only for Discrete and MultiDiscrete actions, not {action_space}. "
                "Remove the mask, or make the actions discrete."
            )
        obs = tuple(leaf for leaf in leaves if leaf.name != MASK_KEY)
        if not obs:
            raise ConfigError("observation space: contains only an action mask. Add at least one observation.")
        return cls(obs, action, masked, isinstance(observation_space, spaces.Dict), observation_space, action_space)

    def split(self, obs: Any) -> dict[str, Any]:
        """Return the leaves of one raw observation, by name (nested Dicts flattened, mask left out)."""
        return {leaf.name: leaf.of(obs) for leaf in self.obs}


def _leaves(space: spaces.Space[Any], path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        for key, sub in space.spaces.items():
            yield from _leaves(sub, (*path, key))
        return
    name = "/".join(path) or PLAIN
    match space:
        case spaces.Box(shape=shape, dtype=dtype):
            image = len(shape) == 3 and dtype == np.uint8
            # float64 observations are stored as the float32 that every net computes in.
            stored = np.dtype(np.float32) if dtype == np.float64 else np.dtype(dtype)
            yield Leaf(name, tuple(shape), stored, "image" if image else "vector", path=path)
        case spaces.Discrete(n=n, start=start):
            yield Leaf(name, (), np.dtype(np.int64), "categorical", (int(n),), int(start), path)
        case spaces.MultiDiscrete(nvec=nvec):
            if np.any(np.asarray(space.start)):
                raise ConfigError(
                    f"observation {name!r}: MultiDiscrete must start at zero (start={space.start}). Subtract the start."
                )
            sizes = tuple(nvec.flatten().tolist())
            yield Leaf(name, tuple(nvec.shape), np.dtype(np.int64), "multi_categorical", sizes, path=path)
        case spaces.MultiBinary(shape=shape):
            yield Leaf(name, tuple(shape), np.dtype(np.int8), "binary", path=path)
        case _:
            raise ConfigError(
                f"observation {name!r}: {type(space).__name__} is not supported (Box, Discrete, MultiDiscrete, "
                "MultiBinary, Dict are). Wrap the env with gymnasium.wrappers.FlattenObservation."
            )


def _action_spec(space: spaces.Space[Any]) -> ActionSpec:
    match space:
        case spaces.Discrete(n=n, start=start):
            return ActionSpec("categorical", (), np.dtype(np.int64), int(n), (int(n),), int(start))
        case spaces.MultiDiscrete(nvec=nvec):
            if nvec.ndim != 1 or np.any(np.asarray(space.start)):
                raise ConfigError(
                    f"action space {space}: MultiDiscrete must be one-dimensional and start at zero. Wrap the env with "
                    "gymnasium.wrappers.TransformAction."
                )
            return ActionSpec(
                "multi_categorical",
                tuple(nvec.shape),
                np.dtype(np.int64),
                int(nvec.sum()),
                tuple(nvec.flatten().tolist()),
            )
        case spaces.MultiBinary(shape=shape):
            return ActionSpec("bernoulli", tuple(shape), np.dtype(np.int8), math.prod(shape))
        case spaces.Box(shape=shape, dtype=dtype, low=low, high=high) if np.issubdtype(dtype, np.floating):
            size = math.prod(shape)
            return ActionSpec(
                "gaussian",
                tuple(shape),
                np.dtype(np.float32),
                2 * size,
                low=low.astype(np.float32),
                high=high.astype(np.float32),
            )
        case _:
            raise ConfigError(
                f"action space {space}: not supported (Discrete, MultiDiscrete, MultiBinary and float Box are). "
                "Wrap the env with gymnasium.wrappers.TransformAction."
            )
