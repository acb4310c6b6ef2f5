"""Extras: arrays that are read beside the observation, right after each step.

An env names them in an attribute `extras`:

    class Simulator(gym.Env):
        extras = {"true_state": Extra(shape=(13,), dtype="int8", read="true_state")}

        def true_state(self) -> np.ndarray: ...

They are stored in the slot like any other field and passed to a `RewardShaper`. They need no message, because the
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
"""How a history names a reading that outlives its episode."""
READ = "paceline/extras"
"""Where the info dict of a single env carries what was read."""


def named_extras(env: Any) -> dict[str, Extra]:
    """The extras that an env, or an env inside it, names.

    Raises:
        ConfigError: What it names cannot be read.
    """
    inner = env
    while not hasattr(inner, "extras") and hasattr(inner, "env"):
        inner = inner.env
    named = getattr(inner, "extras", None)
    if not isinstance(named, Mapping) or not any(isinstance(extra, Extra) for extra in named.values()):
        return {}  # none, or something else of that name
    if not all(isinstance(extra, Extra) for extra in named.values()):
        raise ConfigError(
            f"extras of {type(inner).__name__}: must be a dict of paceline.Extra by name (got {named!r})."
        )
    for name, extra in named.items():
        if extra.read and not callable(_method(env, extra.read)):
            raise ConfigError(
                f"extra {name!r}: {type(inner).__name__} has no method {extra.read!r}. Name one, or leave `read` empty "
                "to read the info dict."
            )
    return dict(named)


def _method(env: Any, name: str) -> Any:
    if isinstance(env, gym.Env):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


class ExtraReader(gym.Wrapper[Any, Any, Any, Any]):
    """Reads what is due right after a step or a reset, whichever thread that happens in, and before anything else does.

    Args:
        env: Names extras.
        extras: Those.
    """

    def __init__(self, env: gym.Env[Any, Any], extras: Mapping[str, Extra]) -> None:
        super().__init__(env)
        self._sources = [
            (name, e.every, env.get_wrapper_attr(e.read) if e.read else None) for name, e in extras.items()
        ]
        self._age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the env's own."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._age = 0
        return obs, self._told(info, ended=False)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the env's own."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._age += 1
        return obs, reward, terminated, truncated, self._told(info, ended=bool(terminated or truncated))

    def _told(self, info: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for name, every, method in self._sources:
            if ended if every == "episode" else self._age % every == 0:
                if method is None and name not in info:
                    raise LookupError(
                        f"extra {name!r}: not in the info dict (it has {sorted(info)}). Put it there after every reset "
                        "and step, or set `read` to a method."
                    )
                # A copy: the reset that may follow at once may write into the same array.
                read[name] = np.array(info[name] if method is None else method())
        return {**info, READ: read}


class Readings:
    """The newest readings of n envs.

    Args:
        extras: What is read.
        n: Envs.
        who: Names env i in errors.
    """

    def __init__(self, extras: Mapping[str, Extra], n: int, who: Callable[[int], str]) -> None:
        self._extras, self._who = extras, who
        self.now = {name: np.zeros((n, *extra.shape), extra.dtype) for name, extra in extras.items()}
        """[n, *extra] as the envs are: of an ended one, of its new episode."""
        self.reached = {name: values.copy() for name, values in self.now.items()}
        """[n, *extra] where the last step led, before any reset."""
        self._begun = np.zeros(n, np.bool_)

    def lend(self, columns: slice, to: Readings) -> None:
        """Have somebody who steps some of the envs keep his readings here."""
        to.now, to.reached, to._begun = (
            {name: values[columns] for name, values in self.now.items()},
            {name: values[columns] for name, values in self.reached.items()},
            self._begun[columns],
        )

    def before_step(self) -> None:
        """A step begins: what is not read anew stands."""
        for name, values in self.now.items():
            self.reached[name][...] = values
        self._begun[:] = False

    def stepped(self, i: int, info: Mapping[str, Any]) -> None:
        """Env i took a step."""
        self._write(self.reached, i, info[READ])

    def began(self, i: int, info: Mapping[str, Any]) -> None:
        """Env i began an episode."""
        for name, extra in self._extras.items():
            if extra.every == "episode":
                self.now[name][i] = self.reached[name][i]
        self._write(self.now, i, info[READ])
        self._begun[i] = True

    def put_now(self, name: str, columns: slice, where: NDArray[np.bool_], values: NDArray[Any]) -> None:
        """Some envs of a group began an episode: what was read there."""
        np.copyto(self.now[name][columns], values, where=_over(where, values))

    def put_reached(self, name: str, columns: slice, where: NDArray[np.bool_], values: NDArray[Any]) -> None:
        """Some envs of a group took a step: what was read there."""
        np.copyto(self.reached[name][columns], values, where=_over(where, values))

    def note_begun(self, columns: slice, where: NDArray[np.bool_]) -> None:
        """These envs of a group began an episode, and all is read."""
        self._begun[columns] = where
        for name, extra in self._extras.items():
            if extra.every == "episode":
                self.put_now(name, columns, where, self.reached[name][columns])

    def settle(self) -> None:
        """The step is over everywhere: the envs that did not begin an episode are where it led."""
        for name, values in self.now.items():
            np.copyto(values, self.reached[name], where=_over(~self._begun, values))

    def show(self, row: Row) -> None:
        """Settle, and write the readings beside the observations."""
        self.settle()
        self.show_beginning(row)

    def put_back(self, i: int, tags: Mapping[str, Any]) -> None:
        """Env i is about to be put back by replaying its episode: what was read at the end of the one before stands."""
        for name in self.now:
            if TAG + name in tags:
                self.now[name][i] = self.reached[name][i] = tags[TAG + name]

    def show_beginning(self, row: Row) -> None:
        """Episodes have begun everywhere."""
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


def _over(where: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.bool_]:
    """[n] as a mask over [n, ...]."""
    return where.reshape(-1, *(1,) * (values.ndim - 1))
