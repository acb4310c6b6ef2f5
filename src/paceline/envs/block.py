"""The interface of a worker's envs (`EnvBlock`), and the conversions that every kind of env needs.

    stored action --ActionMap--> the env's own space
    the env's observation --ObsMap--> leaves of a row, and the mask of legal actions

These conversions do not depend on how the envs are stepped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import cloudpickle
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.envs.extras import Readings
from paceline.envs.make import EnvRecipe, describe
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.memory.worker_status import StatusLine
from paceline.spec import FAILED, MASK_KEY, SUCCEEDED, SUCCESS_KEY, EnvSpec

FinalObs = Sequence[tuple[int, dict[str, NDArray[Any]]]]
"""(index in the block, last observation by leaf, with the mask if known); the receiver owns the arrays."""

CHECKED_STEPS = 2
"""Steps after the first reset whose results are checked against the spaces. A broken env fails at once."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockSetup:
    """How to make the envs of one block, and where it writes their state."""

    recipe: EnvRecipe
    """How to make an env."""
    spec: EnvSpec
    """Spec that `recipe.probe()` returned."""
    seed: int
    """The run's seed."""
    first_group: int
    """Index in the run of the block's first group."""
    groups: int
    group_size: int
    episode: NDArray[np.int64]
    """[n] episode number of each env; the block writes it."""
    line: StatusLine = None
    """The worker's status line in shared memory; the block writes which env is being stepped or waited for."""
    place: int = 0
    """Chooses the core of the env threads, if there are any: different for each process of a machine, and the same for
    all blocks of a process."""

    @property
    def first_env(self) -> int:
        """Index in the run of the block's first env."""
        return self.first_group * self.group_size

    @property
    def n(self) -> int:
        """Number of envs."""
        return self.groups * self.group_size


@dataclass(frozen=True, slots=True)
class History:
    """State of one env's episode: enough to restore it by replaying its actions."""

    episode: int
    actions: NDArray[Any]  # [len, *act]       stored form, all of this episode's
    obs: dict[str, NDArray[Any]]  # [*leaf]    what replaying them must lead to
    mask: NDArray[np.bool_] | None  # [M]
    state: bytes = b""
    """The pickled env, from a checkpoint that the user trusts; the episode is then not replayed."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Other state of the episode: in a game, the opponent."""

    def show(self, i: int, row: Row) -> None:
        """Write the env's last observation into row position i."""
        for name, leaf in self.obs.items():
            row.obs[name][i] = leaf
        if row.mask is not None and self.mask is not None:
            row.mask[i] = self.mask


class Watch(Protocol):
    """Observer of the steps of a replay, for code that keeps state per episode (reward shapers)."""

    def began(self, i: int) -> None:
        """Env i has started its episode; the row holds its first observation."""

    def stepped(self, i: int, action: Any, reward: Any) -> None:
        """Env i has repeated this (stored) action; the row has the observation before it, `readings` those after."""


class EnvBlock(Protocol):
    """The envs of one worker's groups, stepped together. Single-threaded; blocks for as long as its envs do."""

    episode: NDArray[np.int64]
    """[n] number of the episode under way, per env. The caller's array; the block writes it."""

    @property
    def readings(self) -> Readings | None:
        """The newest extras; None if the envs have none."""

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended envs start their next episode.

        Args:
            action: Stored form: categories count from zero, continuous ones are not clipped.
            row: Gets `reward`, `terminated`, `truncated` and `valid`.
            after: Gets `obs` and `mask`.

        Returns:
            The final observations of envs whose episode was truncated; `after` has the first ones of the new episodes.
        """

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """Restore every env from its history; writes `row.obs`, `row.mask` and `row.extras`.

        Args:
            histories: One per env.
            row: Receives the observations.
            watch: Observes the replayed steps; envs that start a new episode instead are not reported to it.

        Returns:
            The envs that could not be restored: they have started a new episode.
        """

    def dump(self) -> list[bytes]:
        """Pickle the envs in their current state; one entry per env, or one per group at its first env's position.

        Raises:
            EnvError: An env cannot be pickled.
        """

    def close(self) -> None:
        """Close the envs. May be called twice."""


@runtime_checkable
class StepsAhead(Protocol):
    """A block that can start a step and finish it later, because its envs step in threads of their own."""

    ahead: Callable[[NDArray[Any]], None] | None
    """Starts the step with these actions and returns at once; `EnvBlock.step` then waits for it. A block that wraps
    another one has None if that one cannot."""


def ahead_of(envs: EnvBlock) -> Callable[[NDArray[Any]], None] | None:
    """The block's `ahead`; None if it cannot start a step before it finishes it."""
    return envs.ahead if isinstance(envs, StepsAhead) else None


def pickled(env: Any, who: str) -> bytes:
    """Pickle an env, for `EnvBlock.dump`.

    Raises:
        EnvError: It cannot be pickled.
    """
    try:
        packed: bytes = cloudpickle.dumps(env)
    except Exception as error:
        raise EnvError(
            f"{who}: cannot be pickled ({type(error).__name__}: {error}). Drop --trust-env-state: the episode "
            "is then replayed instead."
        ) from error
    return packed


def close_all(envs: list[Any], who: Callable[[int], str]) -> None:
    """Close the envs and empty the list, also if one of them raises, which is logged.

    Args:
        envs: The envs.
        who: Returns the name of the i-th env for the log.
    """
    while envs:
        env = envs.pop()
        try:
            env.close()
        except Exception as error:
            _log.warning("%s raised in close: %s", who(len(envs)), describe(error))


def success_in(info: Any) -> int:
    """Return what the info of an episode's last step says about its success: SUCCEEDED, FAILED, or 0 for nothing."""
    said = info.get(SUCCESS_KEY) if isinstance(info, Mapping) else None
    return 0 if said is None else SUCCEEDED if said else FAILED


class ActionMap:
    """Converts stored actions to the env's own action space.

    Args:
        spec: Spec of the env.
    """

    def __init__(self, spec: EnvSpec) -> None:
        space = spec.action_space
        self._start = spec.action.start
        self._dtype = np.dtype(np.int64 if spec.action.kind == "categorical" else space.dtype)
        # The space's own bounds: bounds of a float64 space that are rounded to the stored float32 may lie outside it.
        self._bounds = (space.low, space.high) if isinstance(space, spaces.Box) else None
        self._scalar_box = self._bounds is not None and space.shape == ()

    def batch(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return all actions as one new array, which the env may keep or change."""
        if self._start:
            return action + self._start
        out = action.astype(self._dtype)
        if self._bounds is not None:
            np.maximum(out, self._bounds[0], out=out)
            np.minimum(out, self._bounds[1], out=out)
        return out

    def each(self, action: NDArray[Any]) -> list[Any]:
        """Return one action per env: plain ints for Discrete, otherwise arrays of the space's shape and dtype."""
        if action.ndim == 1 and self._bounds is None:
            return (action + self._start).tolist() if self._start else action.tolist()  # type: ignore[no-any-return]
        out = self.batch(action)
        return [np.asarray(value) for value in out] if self._scalar_box else list(out)


class ObsMap:
    """Finds leaves and masks in raw observations, checks them and writes them into rows.

    Args:
        spec: Spec of the env.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self.masked = spec.masked
        self.mask_in_obs = isinstance(spec.observation_space, spaces.Dict) and MASK_KEY in spec.observation_space.spaces
        self._leaves = spec.obs
        self._mask_size = spec.action.mask_size
        # Index of the first choice of each component: every component needs at least one legal choice.
        self._components = np.cumsum([0, *spec.action.nvec[:-1]])

    def write(self, obs: Any, at: Any, out: dict[str, NDArray[Any]]) -> None:
        """Copy an observation (or a stack of them) into position `at` of the leaves of a row."""
        for leaf in self._leaves:
            out[leaf.name][at] = leaf.of(obs)

    def copy(self, obs: Any) -> dict[str, NDArray[Any]]:
        """Return the leaves as new arrays in their stored dtype."""
        return {leaf.name: np.array(leaf.of(obs), leaf.dtype) for leaf in self._leaves}

    def mask(self, obs: Any, info: dict[str, Any], lead: tuple[int, ...] = ()) -> NDArray[Any]:
        """Return the legal actions as one vector, or `[*lead, M]`."""
        return self.mask_vector(obs[MASK_KEY] if self.mask_in_obs else info[MASK_KEY], lead)

    def mask_vector(self, mask: Any, lead: tuple[int, ...] = ()) -> NDArray[Any]:
        """Return a mask as one vector, or `[*lead, M]`; that of MultiDiscrete actions may be a tuple of vectors."""
        if isinstance(mask, tuple | list):
            mask = np.concatenate([np.asarray(part).reshape(*lead, -1) for part in mask], axis=-1)
        found: NDArray[Any] = np.asarray(mask)
        if found.dtype == object:  # vector envs batch lists as objects, with None for an env without a mask
            every = [False] * self._mask_size
            found = np.array([every if part is None else np.concatenate([np.ravel(p) for p in part]) for part in found])
        return found.reshape(*lead, -1)

    def check(self, obs: Any, info: dict[str, Any], who: str, lead: tuple[int, ...] = ()) -> None:
        """Check an observation against its space, and that there is a mask if the env has masks.

        Args:
            obs: The observation, or a batch of them.
            info: The info dict.
            who: Name of the env for error texts.
            lead: Leading axes of a batch.

        Raises:
            EnvError: The observation or mask does not match; names the leaf, the value and the space.
        """
        for leaf in self._leaves:
            try:
                value = np.asarray(leaf.of(obs))
            except (KeyError, TypeError, IndexError, ValueError) as error:
                raise EnvError(
                    f"{who}: observation has no usable {leaf.name!r} ({type(error).__name__}: {error}), "
                    "which its observation_space promises. Make the two agree."
                ) from error
            shape = (*lead, *leaf.shape)
            if value.shape != shape or not np.can_cast(value.dtype, leaf.dtype, "same_kind"):
                raise EnvError(
                    f"{who}: observation {leaf.name!r} must be {leaf.dtype} of shape {shape}, as in its space "
                    f"(got {value.dtype} of shape {value.shape}). Make the env's observation_space and its "
                    "observations agree."
                )
        if self.masked:
            self._check_mask_shape(obs, info, who, lead)

    def check_legal(self, mask: NDArray[np.bool_], first_env: int) -> None:
        """Check that every env of a row has a legal action.

        Raises:
            EnvError: An env has none; names the first such env.
        """
        legal = np.logical_or.reduceat(mask, self._components, axis=1).all(axis=1)
        if not legal.all():
            index = int(np.argmin(legal))
            raise EnvError(
                f"env {first_env + index}: action_mask allows no action ({mask[index].astype(int).tolist()}). "
                "End the episode instead (terminated=True), or allow a no-op action."
            )

    def _check_mask_shape(self, obs: Any, info: dict[str, Any], who: str, lead: tuple[int, ...]) -> None:
        place = "observation" if self.mask_in_obs else "info"
        if MASK_KEY not in (obs if self.mask_in_obs else info):
            raise EnvError(
                f"{who}: {place} has no {MASK_KEY!r}, but the first one had. Return a mask from every reset and step."
            )
        shape = self.mask(obs, info, lead).shape
        if shape != (*lead, self._mask_size):
            raise EnvError(
                f"{who}: {MASK_KEY} must have {self._mask_size} entries, one per action (got shape {shape})."
            )


def require_distinct(envs: Sequence[Any]) -> None:
    """Check that no two envs are the same object.

    Raises:
        ConfigError: Two envs are the same object.
    """
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise ConfigError("env: the function returned the same env twice. Return a new env each time.")


def require_same_spaces(made: EnvSpec, spec: EnvSpec, who: str) -> None:
    """Check that an env has the spaces for which shared memory was allocated.

    Raises:
        EnvError: The spaces differ; names both.
    """
    keys = [(s.obs, s.action.kind, s.action.shape, s.action.nvec, s.action.start) for s in (made, spec)]
    if keys[0] != keys[1]:
        raise EnvError(
            f"{who}: its spaces ({made.observation_space}, {made.action_space}) differ from the first env's "
            f"({spec.observation_space}, {spec.action_space}). All envs of a run must have the same spaces."
        )
