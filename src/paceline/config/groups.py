"""Groups of envs: how many envs the policy acts for in one call, by default, and how many envs workers need."""

from __future__ import annotations

from collections.abc import Callable

LARGEST_GROUP = 8


def divisors(number: int) -> list[int]:
    """All divisors, in order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def default_group_size(n_envs: int, *, image: bool) -> int:
    """Envs per group (G), from n_envs alone, so that it is the same on every machine.

    Args:
        n_envs: Number of envs.
        image: Whether the policy sees images: a forward then costs enough for larger groups to pay.
    """
    fewest = 2 if image else 8
    return max(
        (size for size in divisors(n_envs) if size <= LARGEST_GROUP and n_envs // size >= fewest),
        default=1,
    )


def enough_envs(workers: int, n_envs: int, group_size: int | None, fits: Callable[[int], bool]) -> int | None:
    """The smallest multiple of `workers` that gives each worker a group, for vector and for image observations.

    Args:
        workers: Number of workers.
        n_envs: Number of envs that is too small.
        group_size: Envs per group; None for the default.
        fits: Whether a number of envs suits the other settings.
    """

    def has_groups(number: int) -> bool:
        sizes = [
            default_group_size(number, image=image) if group_size is None else group_size for image in (False, True)
        ]
        return all(number % size == 0 and number // size >= workers for size in sizes)

    largest = workers * LARGEST_GROUP * n_envs * (group_size or 1)
    return next((each for each in range(workers, largest + 1, workers) if has_groups(each) and fits(each)), None)
