"""Seeds of episodes and groups: no two envs of a run get the same seed in the same episode.

Each function is a keyed permutation of the env's index, and the run's seed and the episode number choose the key.
Hashing all three together would be as random, but two envs could then get the same seed.
"""

from __future__ import annotations

_U64 = (1 << 64) - 1
_BITS = 31  # accepted by every seeding API, including those with signed 32-bit integers
_MASK = (1 << _BITS) - 1
_SPREAD = 10
_GROUP_MASK = (1 << (_BITS - _SPREAD)) - 1


def episode_seed(seed: int, env: int, episode: int) -> int:
    """Return the reset seed of an env for one of its episodes.

    Args:
        seed: The run's seed.
        env: Index of the env in the run, below 2**31.
        episode: Number of the episode, from zero.

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
    """Return the reset seed of the native vector env of one group.

    Many vector envs seed their i-th env with `seed + i`. The results for different groups are therefore at least 1024
    apart, so that no two envs share a seed in groups of up to 1024 envs.

    Args:
        seed: The run's seed.
        group: Index of the group in the run, below 2**21.
        epoch: Larger after every restart of the group, so that it does not repeat its episodes.
    """
    key = _key(seed, epoch, 0x14057B7EF767814F)
    x = (group ^ key) & _GROUP_MASK
    x = x * 0x1B3C6D & _GROUP_MASK
    x ^= x >> 10
    x = (x + (key >> 43)) * 0x1A2D39 & _GROUP_MASK
    x ^= x >> 9
    # The low bits depend on the key alone and are equal for all groups, which keeps the groups 1024 apart.
    return (x << _SPREAD | (key >> 21) & 0x3FF) & _MASK


def _key(seed: int, counter: int, stream: int) -> int:
    """Return 64 well-mixed bits of (seed, counter); each caller passes a different constant as `stream`."""
    z = (seed * 0x9E3779B97F4A7C15 + counter * 0xD1342543DE82EF95 + stream) & _U64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _U64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _U64
    return z ^ (z >> 31)
