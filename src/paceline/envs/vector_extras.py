"""Reads the extras of native vector envs, for a whole group at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from paceline.envs.extras import Readings, copy_where
from paceline.errors import EnvError
from paceline.spec import Extra


class GroupReader:
    """Reads the extras of one group's vector env into the `Readings` of all groups.

    Args:
        env: The vector env.
        extras: The extras that it declares.
        readings: The readings of all groups.
        columns: The columns of this group.
        who: Name of the vector env for error texts.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], extras: Mapping[str, Extra], readings: Readings, columns: slice, who: str
    ) -> None:
        self._extras, self._readings, self._columns, self._who = extras, readings, columns, who
        self._methods = {name: getattr(env, extra.read) for name, extra in extras.items() if extra.read}
        self._age = np.zeros(columns.stop - columns.start, np.int64)

    def began(self, infos: Mapping[str, Any], chosen: NDArray[np.bool_] | None = None) -> None:
        """Read the extras after a reset of the chosen envs; None for all envs of the group."""
        begun = np.ones(len(self._age), np.bool_) if chosen is None else chosen
        self._age[begun] = 0
        for name, extra in self._extras.items():
            if extra.every != "episode":
                copy_where(self._readings.now[name][self._columns], begun, self._read(name, infos))
        self._readings.note_begun(self._columns, begun)

    def stepped(self, infos: Mapping[str, Any], ended: NDArray[np.bool_], *, own_reset: bool) -> None:
        """Read the extras that are due after a step of all envs.

        Args:
            infos: Infos of the step.
            ended: [G] whether the episode ended with this step.
            own_reset: Whether ended envs have been reset within the step (SAME_STEP autoreset); the extras of the ended
                episode are then in `final_info`.
        """
        self._age += 1
        for name, extra in self._extras.items():
            reached = self._readings.reached[name][self._columns]
            due = ended if extra.every == "episode" else self._age % extra.every == 0
            last = due & ended & own_reset
            if last.any():
                copy_where(reached, last, self._final(name, infos))
            if (now := due & ~last).any():
                copy_where(reached, now, self._read(name, infos))

    def _read(self, name: str, infos: Mapping[str, Any]) -> NDArray[Any]:
        method = self._methods.get(name)
        if method is None and name not in infos:
            raise EnvError(f"{self._who}: extra {name!r} is not in infos ({sorted(infos)}). Set `read` to a method.")
        return self._checked(name, infos[name] if method is None else method())

    def _final(self, name: str, infos: Mapping[str, Any]) -> NDArray[Any]:
        last = infos.get("final_info", {})
        if name not in last:
            raise EnvError(
                f"{self._who}: extra {name!r} must be in infos['final_info'] when an episode ends, as the env "
                "resets within the same step. Put it there, or use autoreset_mode DISABLED."
            )
        return self._checked(name, last[name])

    def _checked(self, name: str, values: Any) -> NDArray[Any]:
        array: NDArray[Any] = np.asarray(values)
        extra = self._extras[name]
        if array.shape != (len(self._age), *extra.shape):
            raise EnvError(
                f"{self._who}: extra {name!r} must have shape {(len(self._age), *extra.shape)} (got {array.shape})."
            )
        return array
