"""Counter-based random numbers for games: 64 random bits for every (key, counter).

No generator keeps a state. A board stores its key and a counter, so copying these two numbers copies all its future
randomness, which does not depend on other boards. One numpy call draws for thousands of boards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32, _40 = (np.uint64(bits) for bits in (30, 27, 31, 32, 40))


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: a permutation in which every bit of the result depends on every bit of `x`.

    Args:
        x: Any shape except (): numpy warns of overflow in scalars, but not in arrays.
    """
    z = (x ^ (x >> _30)) * _FIRST
    z ^= z >> _27
    z *= _SECOND
    z ^= z >> _31
    return z


def draws(key: NDArray[np.uint64], counter: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Return 64 random bits for each pair of key and counter, broadcast against each other.

    Args:
        key: Well mixed, e.g. `mix` of a seed, so that no two keys differ by only a few counts.
        counter: Not negative.
    """
    return mix(key + counter.astype(np.uint64) * _GOLDEN)


def uniform(noise: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), made of the upper 24 of 64 random bits each."""
    share: NDArray[np.float64] = (noise >> _40).astype(np.float64) / float(1 << 24)
    return share


def below(noise: NDArray[np.uint64], bound: NDArray[np.uint64] | np.uint64) -> NDArray[np.int64]:
    """Return random integers from 0 to `bound - 1`, uniform up to a relative error of bound / 2**32.

    Args:
        noise: 64 random bits each; uses the upper half.
        bound: At least 1, below 2**32.
    """
    return (((noise >> _32) * bound) >> _32).view(np.int64)


def pick(allowed: NDArray[np.bool_], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Draw one of the allowed actions of each row uniformly.

    Args:
        allowed: [k, actions], at least one per row.
        noise: [k] 64 random bits each.
    """
    counted = allowed.cumsum(axis=1, dtype=np.int64)  # [k, actions] number of allowed actions up to each action
    nth = below(noise, counted[:, -1].astype(np.uint64))
    chosen: NDArray[np.int64] = (counted > nth[:, None]).argmax(axis=1)
    return chosen
