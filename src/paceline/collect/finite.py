"""NaN and infinite values from envs (`--on-nan`): find them before the learner reads them, and name the env.

raise            `FiniteRollouts` checks each rollout once, at almost no cost. With a replay buffer, `FiniteEnvs` checks
warn, replace    `FiniteEnvs` checks every row, at about two microseconds per row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import EnvBlock, FinalObs, History, Watch, ahead_of
from paceline.errors import EnvError
from paceline.memory.rows import Row
from paceline.memory.slots import FinalSlot, Slots
from paceline.memory.worker_status import NOT_FINITE

OnNan: TypeAlias = Literal["raise", "warn", "replace"]
ADVICE = "Fix the env, or use --on-nan replace (or warn)."
AT_ONCE = 1 << 16
"""Values per call of `np.isfinite`, so that its result, one byte per value, fits the CPU cache for any rollout size."""


class Bad(NamedTuple):
    """Position of a NaN or infinite value."""

    what: str
    """Name of the array, e.g. `reward`."""
    t: int
    """Row; 0 for final observations."""
    i: int
    """Column; for final observations, the position in the list."""
    value: float


def first_bad(arrays: Mapping[str, NDArray[Any]]) -> Bad | None:
    """Find the first NaN or infinite value; None if all values are finite.

    Args:
        arrays: [T, n, ...] each, by name. Integer arrays are skipped.
    """
    for what, array in arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        rows = max(1, AT_ONCE * len(array) // array.size)
        for start in range(0, len(array), rows):
            some = array[start : start + rows]
            if not (finite := np.isfinite(some)).all():
                t, i, *_ = at = tuple(int(k) for k in np.argwhere(~finite)[0])
                return Bad(what, start + t, i, float(some[at]))
    return None


class FiniteRollouts:
    """Checks a worker's whole rollout for NaN and infinite values before the learner reads it.

    Args:
        slots: The sets of slots that the worker fills.
        first_group: The worker's first group.
        groups: Number of groups of the worker.
        seed: The run's seed, for the error text.
        episode: [n] episode number of each env.
    """

    def __init__(
        self, slots: Sequence[Slots], *, first_group: int, groups: int, seed: int, episode: NDArray[np.int64]
    ) -> None:
        mine = slots[0].shape.columns(first_group, groups)
        self._first, self._seed, self._episode = first_group * slots[0].shape.group_size, seed, episode
        self._numbers = [self._of(one, mine) for one in slots]
        self._ended = [(one.arrays["terminated"][:, mine], one.arrays["truncated"][:, mine]) for one in slots]

    def check(self, step: int, into: int, finals: Sequence[FinalSlot]) -> None:
        """Check one rollout.

        Args:
            step: Step of each env at which the rollout began.
            into: Index of the set of slots that holds it.
            finals: Final observations of the episodes that were truncated in it.

        Raises:
            EnvError: An observation or reward is NaN or infinite.
        """
        bad = first_bad(self._numbers[into])
        if bad is not None:
            # `episode` is the env's current episode. Subtract the episodes that ended since row t.
            terminated, truncated = self._ended[into]
            ended = int((terminated[bad.t :, bad.i] | truncated[bad.t :, bad.i]).sum())
            number = step + bad.t + (bad.what == "reward")
            self._refuse(self._first + bad.i, f"episode {int(self._episode[bad.i]) - ended}", bad, number)
        for final in finals:
            lasts = {
                f"final observation {name!r}": leaf[None, : int(final.count[0])] for name, leaf in final.obs.items()
            }
            if (bad := first_bad(lasts)) is not None:
                t, env = final.at[bad.i]
                self._refuse(int(env), "truncated", bad, step + int(t) + 1)

    def _refuse(self, env: int, episode: str, bad: Bad, number: int) -> NoReturn:
        raise EnvError(
            f"env {env} (seed {self._seed}, {episode}): {bad.what} is not finite ({bad.value}) at step {number:,} "
            f"of this env. {ADVICE}"
        )

    def _of(self, slots: Slots, mine: slice) -> dict[str, NDArray[Any]]:
        leaves = slots.shape.spec.obs
        obs = {f"observation {leaf.name!r}": slots.arrays[f"obs/{leaf.name}"][:, mine] for leaf in leaves}
        return {**obs, "reward": slots.arrays["reward"][:, mine]}


class FiniteEnvs:
    """Wraps an env block and checks every row for NaN and infinite values. All other behaviour is the block's.

    Args:
        envs: The block to wrap.
        on_nan: What to do with such a value: raise an error, count it, or count it and replace it with 0.
        first_env: Index in the run of the block's first env.
        line: The worker's status line in shared memory. The counts go there, and the driver reads them.
    """

    def __init__(self, envs: EnvBlock, on_nan: OnNan, *, first_env: int, line: NDArray[np.int64]) -> None:
        self._envs, self._on_nan, self._first, self._line = envs, on_nan, first_env, line
        self.episode, self.readings, self.dump, self.close = envs.episode, envs.readings, envs.dump, envs.close
        self.ahead = ahead_of(envs)
        """The block's `ahead` method; None if it has none."""

    def reset(self, row: Row) -> None:
        """See `EnvBlock`; then checks the observations."""
        self._envs.reset(row)
        self._look_at_obs(row.obs)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """See `EnvBlock`; then checks rewards, observations and final observations."""
        finals = self._envs.step(action, row, after)
        if not np.isfinite(row.reward).all():
            self._found("reward", row.reward)
        self._look_at_obs(after.obs)
        for i, last in finals:
            self._look_at_obs({name: leaf[None] for name, leaf in last.items()}, i)
        return finals

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """See `EnvBlock`; then checks the observations."""
        restarted = self._envs.restore(histories, row, watch)
        self._look_at_obs(row.obs)
        return restarted

    def _look_at_obs(self, obs: Mapping[str, NDArray[Any]], first: int = 0) -> None:
        for name, leaf in obs.items():
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                self._found(f"observation {name!r}", leaf, first)

    def _found(self, what: str, array: NDArray[Any], first: int = 0) -> None:
        bad = ~np.isfinite(array)
        i, *rest = (int(k) for k in np.argwhere(bad)[0])
        env = self._first + first + i
        if self._on_nan == "raise":
            episode = int(self.episode[first + i])
            raise EnvError(f"env {env} (episode {episode}): {what} is not finite ({array[(i, *rest)]}). {ADVICE}")
        count = (int(self._line[NOT_FINITE]) >> ENV_BITS) + int(np.count_nonzero(bad))
        self._line[NOT_FINITE] = count << ENV_BITS | env
        if self._on_nan == "replace":
            array[bad] = 0.0


ENV_BITS = 31
"""A status line packs two numbers into one int64: the env of the latest value in these low bits, the count above."""


class NotFinite:
    """The driver's side: sums the workers' counts of NaN and infinite values and words the warning.

    Args:
        lines: [workers, 16] status lines of all workers.
        on_nan: What workers do with such a value.
    """

    def __init__(self, lines: NDArray[np.int64], on_nan: OnNan) -> None:
        self._lines, self._on_nan, self._reported = lines, on_nan, 0
        self._seen = np.zeros(len(lines), np.int64)
        self.count = 0

    def notes(self) -> list[str]:
        """Warnings for the user: the first one at once, the next when the count has grown tenfold."""
        now = self._lines[:, NOT_FINITE] >> ENV_BITS
        # A replaced worker counts from zero again.
        self.count += int(np.where(now >= self._seen, now - self._seen, now).sum())
        moved = np.flatnonzero(now != self._seen)
        self._seen = now
        if not self.count or self.count < 10 * self._reported:
            return []
        self._reported = self.count
        env = int(self._lines[moved[-1] if len(moved) else 0, NOT_FINITE]) & (1 << ENV_BITS) - 1
        what = "replaced with 0" if self._on_nan == "replace" else "kept, so the learner trains on them"
        return [f"envs returned {self.count:,} NaN or infinite values, the latest in env {env}: {what} (--on-nan)"]
