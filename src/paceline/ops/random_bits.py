"""All chance in games: 64 random bits for every (key, counter), the same whatever else is played beside it.

There is no generator with a state of its own. A board keeps its key and a counter, so copying these two numbers copies
its whole future, and thousands of boards draw in one numpy call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32, _40 = (np.uint64(bits) for bits in (30, 27, 31, 32, 40))


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the result depends on every bit of `x`. A permutation.

    Args:
        x: Of any shape but (): scalars would warn where arrays wrap around.
    """
    z = (x ^ (x >> _30)) * _FIRST
    z ^= z >> _27
    z *= _SECOND
    z ^= z >> _31
    return z


def draws(key: NDArray[np.uint64], counter: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """64 random bits for each pair of key and counter, broadcast against each other.

    Args:
        key: Well mixed, such as `mix` of a seed, so that no two keys are a few counts apart.
        counter: Not negative.
    """
    return mix(key + counter.astype(np.uint64) * _GOLDEN)


def uniform(noise: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), from the upper 24 of 64 random bits each."""
    share: NDArray[np.float64] = (noise >> _40).astype(np.float64) / float(1 << 24)
    return share


def below(noise: NDArray[np.uint64], bound: NDArray[np.uint64] | np.uint64) -> NDArray[np.int64]:
    """Random integers from 0 to `bound - 1`, each as likely as the others to one in 2**32 / bound.

    Args:
        noise: 64 random bits each; the upper half is used.
        bound: At least 1, below 2**32.
    """
    return (((noise >> _32) * bound) >> _32).view(np.int64)


def pick(allowed: NDArray[np.bool_], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
    """One of the allowed actions of each row, each as likely as the others.

    Args:
        allowed: [k, actions], at least one of them in every row.
        noise: [k]
    """
    counted = allowed.cumsum(axis=1, dtype=np.int64)  # [k, actions] how many are allowed up to each action
    nth = below(noise, counted[:, -1].astype(np.uint64))
    chosen: NDArray[np.int64] = (counted > nth[:, None]).argmax(axis=1)
    return chosen
