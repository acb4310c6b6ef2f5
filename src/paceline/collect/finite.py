"""Numbers from envs that are none: NaN and infinities, named by env before anything is learned from them.

raise            looked for once per rollout, by `FiniteRollouts`: next to free. In a replay, by `FiniteEnvs`
warn, replace    looked for in every row, by `FiniteEnvs`: about two microseconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import EnvBlock, Finals, History, Watch
from paceline.envs.extras import Readings
from paceline.errors import EnvError
from paceline.memory.lines import NOT_FINITE
from paceline.memory.rows import Row
from paceline.memory.slots import FinalSlot, Slots

OnNan: TypeAlias = Literal["raise", "warn", "replace"]
ADVICE = "Mend the env, or use --on-nan replace (or warn)."
AT_ONCE = 1 << 16
"""Numbers looked at together: the answers, a byte each, stay in the cache instead of growing with the rollout."""


class Bad(NamedTuple):
    """Where a number is none."""

    what: str
    t: int
    """In which row; or, of last observations, in which of them."""
    i: int
    """In which column."""
    value: float


def first_bad(arrays: Mapping[str, NDArray[Any]]) -> Bad | None:
    """The first number that is not finite.

    Args:
        arrays: [T, n, ...] each, by what they are. Those of integers are fine as they are.
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
    """Rollouts of a worker, looked at as a whole before anybody learns from them.

    Args:
        slots: Where they are collected.
        first_group: The first group.
        groups: How many.
        seed: The run's.
        episode: [n] number of each env's episode.
    """

    def __init__(
        self, slots: Sequence[Slots], *, first_group: int, groups: int, seed: int, episode: NDArray[np.int64]
    ) -> None:
        mine = slots[0].shape.columns(first_group, groups)
        self._first, self._seed, self._episode = first_group * slots[0].shape.group_size, seed, episode
        self._numbers = [self._of(one, mine) for one in slots]
        self._ended = [(one.array("terminated")[:, mine], one.array("truncated")[:, mine]) for one in slots]

    def check(self, step: int, into: int, finals: Sequence[FinalSlot]) -> None:
        """Look at one.

        Args:
            step: At which step of each env it began.
            into: In which of the slots it is.
            finals: Last observations of episodes that were truncated in it.

        Raises:
            EnvError: A number in it is none.
        """
        bad = first_bad(self._numbers[into])
        if bad is not None:
            # Its episode when that row was shown: the one under way, less those that have ended since.
            terminated, truncated = self._ended[into]
            ended = int((terminated[bad.t :, bad.i] | truncated[bad.t :, bad.i]).sum())
            number = step + bad.t + (bad.what == "reward")
            self._refuse(self._first + bad.i, f"episode {int(self._episode[bad.i]) - ended}", bad, number)
        for final in finals:
            lasts = {
                f"last observation {name!r}": leaf[None, : int(final.count[0])] for name, leaf in final.obs.items()
            }
            if (bad := first_bad(lasts)) is not None:
                t, env = final.at[bad.i]
                self._refuse(int(env), "truncated", bad, step + int(t) + 1)

    def _refuse(self, env: int, episode: str, bad: Bad, number: int) -> NoReturn:
        raise EnvError(
            f"env {env} (seed {self._seed}, {episode}): {bad.what} is not finite ({bad.value}) in its step {number:,} "
            f"of the run. {ADVICE}"
        )

    def _of(self, slots: Slots, mine: slice) -> dict[str, NDArray[Any]]:
        leaves = slots.shape.spec.obs
        obs = {f"observation {leaf.name!r}": slots.array(f"obs/{leaf.name}")[:, mine] for leaf in leaves}
        return {**obs, "reward": slots.array("reward")[:, mine]}


class FiniteEnvs:
    """Envs whose numbers are looked at in every row. Otherwise the block it is given.

    Args:
        envs: The block.
        on_nan: What is done about a number that is not finite: an error, a note, or 0 in its place and a note.
        first_env: Index in the run of the block's first env.
        line: The worker's line of shared memory; the driver reads the notes there.
    """

    def __init__(self, envs: EnvBlock, on_nan: OnNan, *, first_env: int, line: NDArray[np.int64]) -> None:
        self._envs, self._on_nan, self._first, self._line = envs, on_nan, first_env, line
        self.episode = envs.episode
        self.ahead = getattr(envs, "ahead", None)
        """As the block's own, if it has it."""

    def reset(self, row: Row) -> None:
        """As the block's own."""
        self._envs.reset(row)
        self._look_at_obs(row.obs)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> Finals:
        """As the block's own."""
        finals = self._envs.step(action, row, after)
        if not np.isfinite(row.reward).all():
            self._found("reward", row.reward)
        self._look_at_obs(after.obs)
        for i, last in finals:
            self._look_at_obs({name: leaf[None] for name, leaf in last.items()}, i)
        return finals

    @property
    def readings(self) -> Readings | None:
        """As the block's own."""
        return self._envs.readings

    def restore(self, histories: Sequence[History], row: Row, watch: Watch | None = None, /) -> list[int]:
        """As the block's own."""
        strayed = self._envs.restore(histories, row, watch)
        self._look_at_obs(row.obs)
        return strayed

    def dump(self) -> list[bytes]:
        """As the block's own."""
        return self._envs.dump()

    def close(self) -> None:
        """As the block's own."""
        self._envs.close()

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
"""A line notes how many numbers there were, and in these last bits the env that had the last."""


class NotFinite:
    """The driver's end: what the lines of workers say.

    Args:
        lines: [workers, 8] those of all.
        on_nan: What workers do about it.
    """

    def __init__(self, lines: NDArray[np.int64], on_nan: OnNan) -> None:
        self._lines, self._on_nan, self._told = lines, on_nan, 0
        self._seen = np.zeros(len(lines), np.int64)
        self.count = 0

    def notes(self) -> list[str]:
        """What the user should know, each time that there are ten times as many."""
        now = self._lines[:, NOT_FINITE] >> ENV_BITS
        # A new worker begins to count at zero.
        self.count += int(np.where(now >= self._seen, now - self._seen, now).sum())
        moved = np.flatnonzero(now != self._seen)
        self._seen = now
        if not self.count or self.count < 10 * self._told:
            return []
        self._told = self.count
        env = int(self._lines[moved[-1] if len(moved) else 0, NOT_FINITE]) & (1 << ENV_BITS) - 1
        what = "0 stands in their place" if self._on_nan == "replace" else "they are learned from all the same"
        return [f"envs gave {self.count:,} numbers that are not finite, the last in env {env}; {what} (--on-nan)"]
