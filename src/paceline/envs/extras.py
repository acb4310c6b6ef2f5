"""Extras: arrays that are read from an env beside the observation, right after each step.

An env declares them in an attribute `extras`:

    class Simulator(gym.Env):
        extras = {"true_state": Extra(shape=(13,), dtype="int8", read="true_state")}

        def true_state(self) -> np.ndarray: ...

Extras are stored in the slot like any other field and passed to a `RewardShaper`. They need no message, because the
process that steps the env reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.spec import Extra

__all__ = ["Extra", "ExtraReader", "Readings", "named_extras"]

TAG = "extra/"
"""Prefix of the tags under which a history keeps extras of the previous episode."""
READ = "paceline/extras"
"""Key under which `ExtraReader` puts the values it has read into the info dict."""


def named_extras(env: Any) -> dict[str, Extra]:
    """Return the extras that an env, or an env inside its wrappers, declares.

    Raises:
        ConfigError: The declaration is not a dict of `Extra`, or a method that it names is missing.
    """
    inner = env
    while not hasattr(inner, "extras") and hasattr(inner, "env"):
        inner = inner.env
    named = getattr(inner, "extras", None)
    if not isinstance(named, Mapping) or not any(isinstance(extra, Extra) for extra in named.values()):
        return {}  # no extras, or an unrelated attribute of that name
    if not all(isinstance(extra, Extra) for extra in named.values()):
        raise ConfigError(
            f"extras of {type(inner).__name__}: must be a dict of paceline.Extra by name (got {named!r})."
        )
    for name, extra in named.items():
        if extra.read and not callable(_method(env, extra.read)):
            raise ConfigError(
                f"extra {name!r}: {type(inner).__name__} has no method {extra.read!r}. Name a method that exists, or "
                "leave `read` empty to read the info dict."
            )
    return dict(named)


def _method(env: Any, name: str) -> Any:
    if isinstance(env, gym.Env):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


class ExtraReader(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that reads the extras of a single env right after each step and reset, in the thread that steps it.

    Args:
        env: The env.
        extras: The extras that it declares.
    """

    def __init__(self, env: gym.Env[Any, Any], extras: Mapping[str, Extra]) -> None:
        super().__init__(env)
        self._sources = [
            (name, e.every, env.get_wrapper_attr(e.read) if e.read else None) for name, e in extras.items()
        ]
        self._age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the env and read its extras."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._age = 0
        return obs, self._with_extras(info, ended=False)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and read the extras that are due."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._age += 1
        return obs, reward, terminated, truncated, self._with_extras(info, ended=bool(terminated or truncated))

    def _with_extras(self, info: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        """Return the info with the extras that are due after this step or reset."""
        read: dict[str, Any] = {}
        for name, every, method in self._sources:
            if ended if every == "episode" else self._age % every == 0:
                if method is None and name not in info:
                    raise LookupError(
                        f"extra {name!r}: not in the info dict (it has {sorted(info)}). Put it there after every reset "
                        "and step, or set `read` to a method."
                    )
                # Copy: a reset may follow at once and write into the same array.
                read[name] = np.array(info[name] if method is None else method())
        return {**info, READ: read}


class Readings:
    """The newest extras of n envs, and those at the end of the last step.

    Args:
        extras: The extras by name.
        n: Number of envs.
        who: Returns the name of env i for error texts.
    """

    def __init__(self, extras: Mapping[str, Extra], n: int, who: Callable[[int], str]) -> None:
        self._extras, self._who = extras, who
        self.now = {name: np.zeros((n, *extra.shape), extra.dtype) for name, extra in extras.items()}
        """[n, *extra] in the current state of the envs; for an env that was reset, in its new episode."""
        self.reached = {name: values.copy() for name, values in self.now.items()}
        """[n, *extra] after the last step, before any reset."""
        self._begun = np.zeros(n, np.bool_)

    def share_columns(self, columns: slice, to: Readings) -> None:
        """Make the arrays of `to` views of these columns: for code that steps only some of the envs."""
        to.now, to.reached, to._begun = (
            {name: values[columns] for name, values in self.now.items()},
            {name: values[columns] for name, values in self.reached.items()},
            self._begun[columns],
        )

    def before_step(self) -> None:
        """Start a step: extras that are not read in it keep their values."""
        for name, values in self.now.items():
            self.reached[name][...] = values
        self._begun[:] = False

    def stepped(self, i: int, info: Mapping[str, Any]) -> None:
        """Store what was read after a step of env i."""
        self._write(self.reached, i, info[READ])

    def began(self, i: int, info: Mapping[str, Any]) -> None:
        """Store what was read after a reset of env i."""
        for name, extra in self._extras.items():
            if extra.every == "episode":
                self.now[name][i] = self.reached[name][i]
        self._write(self.now, i, info[READ])
        self._begun[i] = True

    def note_begun(self, columns: slice, where: NDArray[np.bool_]) -> None:
        """Mark some envs of a group as reset, after their extras have been stored in `now`."""
        self._begun[columns] = where
        for name, extra in self._extras.items():
            if extra.every == "episode":
                copy_where(self.now[name][columns], where, self.reached[name][columns])

    def settle(self) -> None:
        """Finish a step of all envs: envs that were not reset keep the values after the step."""
        for name, values in self.now.items():
            copy_where(values, ~self._begun, self.reached[name])

    def show(self, row: Row) -> None:
        """Finish a step of all envs and write the extras to the row."""
        self.settle()
        self.show_current(row)

    def restore(self, i: int, tags: Mapping[str, Any]) -> None:
        """Restore the extras that env i had at the end of its previous episode, before its episode is replayed."""
        for name in self.now:
            if TAG + name in tags:
                self.now[name][i] = self.reached[name][i] = tags[TAG + name]

    def show_current(self, row: Row) -> None:
        """Write the extras to the row, after a reset of all envs."""
        for name, values in self.now.items():
            row.extras[name][...] = values

    def _write(self, into: dict[str, NDArray[Any]], i: int, read: Mapping[str, Any]) -> None:
        for name, value in read.items():
            try:
                if np.shape(value) != self._extras[name].shape:
                    raise ValueError(f"shape {np.shape(value)}")
                into[name][i] = value
            except (TypeError, ValueError) as error:
                extra = self._extras[name]
                raise EnvError(
                    f"{self._who(i)}: extra {name!r} must be {extra.dtype} of shape {extra.shape} (got {value!r}: "
                    f"{error})."
                ) from error


def copy_where(to: NDArray[Any], where: NDArray[np.bool_], values: NDArray[Any]) -> None:
    """Copy those rows of `values` [n, ...] for which `where` [n] is True."""
    np.copyto(to, values, where=where.reshape(-1, *(1,) * (values.ndim - 1)))
