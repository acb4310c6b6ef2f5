"""Spaces as leaves: fixed-size leaves live in shared memory, others (Text, Graph, Sequence) are pickled.

    Dict(a: Box, b: Tuple(Discrete, Text))  ->  fixed ("a",), ("b", 0)   loose ("b", 1)

Batches have Gymnasium's format: one array per fixed leaf, a tuple of objects per loose (variable-size) leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.errors import EnvError
from paceline.memory.shared import Arrays, Field

Path: TypeAlias = tuple[str | int, ...]
AnySpace: TypeAlias = spaces.Space[Any]
ObsWriter: TypeAlias = Callable[[int, Any], tuple[Any, ...]]

_FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True, slots=True)
class FixedLeaf:
    """A leaf of fixed shape and dtype: one array in shared memory."""

    path: Path
    name: str
    """Name of its field in shared memory."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class SpaceLeaves:
    """All leaves of a space."""

    space: AnySpace
    fixed: tuple[FixedLeaf, ...]
    loose: tuple[Path, ...]

    @classmethod
    def of(cls, space: AnySpace, prefix: str) -> SpaceLeaves:
        """Find the leaves of a space.

        Args:
            space: Space of a single env.
            prefix: Prefix of the field names in shared memory.
        """
        fixed, loose = [], []
        for number, (path, leaf) in enumerate(_walk(space, ())):
            if isinstance(leaf, _FIXED) and leaf.shape is not None:
                fixed.append(FixedLeaf(path, f"{prefix}/{number}", tuple(leaf.shape), np.dtype(leaf.dtype)))
            else:
                loose.append(path)
        return cls(space, tuple(fixed), tuple(loose))

    def fields(self, n: int) -> list[Field]:
        """The arena fields for n envs."""
        return [Field.of(leaf.name, (n, *leaf.shape), leaf.dtype) for leaf in self.fixed]

    def arrays(self, memory: Arrays, first: int, n: int) -> dict[Path, NDArray[Any]]:
        """Views of the fixed leaves of n envs from `first` on."""
        return {leaf.path: memory[leaf.name][first : first + n] for leaf in self.fixed}

    def batch(self, leaf: Callable[[Path], Any]) -> Any:
        """Assemble a batch from the values that `leaf` returns for each path."""
        return _batch(self.space, leaf, ())


def obs_writer(leaves: SpaceLeaves, arrays: Mapping[Path, NDArray[Any]]) -> ObsWriter:
    """Make a function that writes an observation to position `at` of the arrays and returns its loose leaves.

    The function raises EnvError if the observation does not match its space.

    Args:
        leaves: SpaceLeaves of the observation space.
        arrays: [n, *leaf] by path.
    """
    if not leaves.loose and len(leaves.fixed) == 1 and leaves.fixed[0].path == ():
        return _plain_writer(leaves.fixed[0], arrays[()])
    fixed = [(leaf, arrays[leaf.path]) for leaf in leaves.fixed]

    def write(at: int, obs: Any) -> tuple[Any, ...]:
        try:
            for leaf, array in fixed:
                array[at] = _checked(leaf, _get(obs, leaf.path))
            return tuple(_get(obs, path) for path in leaves.loose)
        except (KeyError, IndexError, TypeError) as error:
            raise EnvError(
                f"observation: a part of its observation_space is missing ({type(error).__name__}: {error}). "
                "Make the env's observation_space and its observations agree."
            ) from error

    return write


def _plain_writer(leaf: FixedLeaf, array: NDArray[Any]) -> ObsWriter:
    """Fast path for the usual case of one array: it runs in every env step."""
    # An unpickled dtype is equal to numpy's built-in object but not identical, and `is` is faster than `==`.
    dtype, shape, ndarray = np.dtype(leaf.dtype.str), leaf.shape, np.ndarray

    def write(at: int, obs: Any) -> tuple[Any, ...]:
        if type(obs) is ndarray and obs.dtype is dtype and obs.shape == shape:
            array[at] = obs
        else:
            array[at] = _checked(leaf, obs)
        return ()

    return write


def write_batch(
    leaves: SpaceLeaves, arrays: Mapping[Path, NDArray[Any]], actions: Any, ids: NDArray[np.intp] | None, n: int
) -> dict[Path, list[Any]]:
    """Copy a batch of actions to the envs `ids` (None: all of them); returns the loose leaves.

    Args:
        leaves: SpaceLeaves of the action space.
        arrays: [num_envs, *leaf] by path.
        actions: A batch as Gymnasium makes it, or for a Dict or Tuple space also a list with one action per env.
        ids: The envs.
        n: Number of actions.

    Raises:
        ValueError: `actions` is not a batch of n actions of the space.
    """
    at = slice(None) if ids is None else ids
    loose: dict[Path, list[Any]] = {}
    get = _get_from_each if _is_list_of_actions(leaves.space, actions) else _get
    try:
        for leaf in leaves.fixed:
            arrays[leaf.path][at] = _fitting(leaf, get(actions, leaf.path), n)
        for path in leaves.loose:
            loose[path] = list(get(actions, path))
            if len(loose[path]) != n:
                raise ValueError(f"actions{_where(path)}: must have {n} entries, one per env (got {len(loose[path])}).")
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"actions: must be a batch of {n} actions of {leaves.space} ({type(error).__name__}: {error}). "
            "See `action_space.sample()` for an example."
        ) from error
    return loose


def read_batch(leaves: SpaceLeaves, arrays: Mapping[Path, NDArray[Any]], obs: Any) -> None:
    """Copy a batch of observations, one for each env, into the arrays of the fixed leaves."""
    for leaf in leaves.fixed:
        arrays[leaf.path][...] = _get(obs, leaf.path)


def _fitting(leaf: FixedLeaf, value: Any, n: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != (n, *leaf.shape):
        raise ValueError(
            f"actions{_where(leaf.path)}: must have shape {(n, *leaf.shape)}, one action per env (got {array.shape})."
        )
    whole = array.dtype.kind in "iub" and leaf.dtype.kind in "iub"
    if not whole and not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        raise ValueError(f"actions{_where(leaf.path)}: must be {leaf.dtype} (got {array.dtype}). Convert them.")
    return array


def _checked(leaf: FixedLeaf, value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != leaf.shape or not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        raise EnvError(
            f"observation{_where(leaf.path)} must be {leaf.dtype} of shape {leaf.shape}, as its space says (got "
            f"{array.dtype} of shape {array.shape}). Make the env's observation_space and its observations agree."
        )
    return array


def _where(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _get(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _get_from_each(values: Sequence[Any], path: Path) -> list[Any]:
    return [_get(value, path) for value in values]


def _is_list_of_actions(space: AnySpace, actions: Any) -> bool:
    """Whether `actions` has one action per env, and not one batch per part of the space."""
    if isinstance(space, spaces.Dict):
        return isinstance(actions, list | tuple | np.ndarray) and all(isinstance(one, Mapping) for one in actions)
    # A batch of a Tuple space is a tuple, so only a list can have one action per env.
    return isinstance(space, spaces.Tuple) and isinstance(actions, list) and all(type(one) is tuple for one in actions)


def _walk(space: AnySpace, path: Path) -> Iterator[tuple[Path, AnySpace]]:
    parts = _parts(space)
    if parts is None:
        yield path, space
        return
    for key, part in parts:
        yield from _walk(part, (*path, key))


def _parts(space: AnySpace) -> list[tuple[str | int, AnySpace]] | None:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return None


def _batch(space: AnySpace, leaf: Callable[[Path], Any], path: Path) -> Any:
    parts = _parts(space)
    if parts is None:
        return leaf(path)
    made = {key: _batch(part, leaf, (*path, key)) for key, part in parts}
    return made if isinstance(space, spaces.Dict) else tuple(made.values())
