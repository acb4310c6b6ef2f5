"""Seeds of episodes and groups: cheap, and never shared by two envs.

Each function is a keyed permutation: the run's seed and the episode choose the key, the env's index is what is
permuted. Hashing the three together would be as random, but two envs could then draw the same seed.
"""

from __future__ import annotations

_U64 = (1 << 64) - 1
_BITS = 31  # What every seeding API accepts, signed 32-bit ones included.
_MASK = (1 << _BITS) - 1
_SPREAD = 10
_GROUP_MASK = (1 << (_BITS - _SPREAD)) - 1


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed that env number `env` of a run is reset with for its episode number `episode`.

    Args:
        seed: The run's seed.
        env: Index of the env in the run, below 2**31.
        episode: Counts from zero.

    Returns:
        31 bits; for one (seed, episode) a bijection of `env`.
    """
    key = _key(seed, episode, 0x5851F42D4C957F2D)
    # Xor, odd multiplication and xor-shift each permute the 31-bit numbers, hence so does the chain.
    x = (env ^ key) & _MASK
    x = x * 0x2C1B3C6D & _MASK
    x ^= x >> 15
    x = (x + (key >> 33)) * 0x297A2D39 & _MASK
    return x ^ (x >> 14)


def group_seed(seed: int, group: int, epoch: int = 0) -> int:
    """The seed of a native vector env that steps group number `group`.

    Many vector envs give `seed + i` to their i-th env, so the results are at least 1024 apart: groups of up to 1024
    envs share no stream either.

    Args:
        seed: The run's seed.
        group: Index of the group in the run, below 2**21.
        epoch: Raised whenever the group must begin afresh, so that it does not live the same episodes again.
    """
    key = _key(seed, epoch, 0x14057B7EF767814F)
    x = (group ^ key) & _GROUP_MASK
    x = x * 0x1B3C6D & _GROUP_MASK
    x ^= x >> 10
    x = (x + (key >> 43)) * 0x1A2D39 & _GROUP_MASK
    x ^= x >> 9
    # The low bits come from the key alone: equal for all groups, so that they stay apart.
    return (x << _SPREAD | (key >> 21) & 0x3FF) & _MASK


def _key(seed: int, counter: int, stream: int) -> int:
    """64 well-mixed bits of (seed, counter); `stream` keeps the users of this function apart."""
    z = (seed * 0x9E3779B97F4A7C15 + counter * 0xD1342543DE82EF95 + stream) & _U64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _U64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _U64
    return z ^ (z >> 31)
