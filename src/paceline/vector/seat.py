"""One env of a vector env: steps or resets it and writes the results to its position in shared memory.

It implements Gymnasium's three autoreset modes: the next step resets an ended env (NEXT_STEP), the same step does, with
the final observation in the infos (SAME_STEP), or the caller does (DISABLED).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paceline.envs.extras import READ
from paceline.envs.make import Env, describe
from paceline.errors import EnvError
from paceline.system.one_core import roaming
from paceline.vector.leaves import ObsWriter

Infos: TypeAlias = tuple[dict[str, Any], ...]
"""The infos of one step, in the order in which Gymnasium adds them to the batch's infos. Usually empty."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the n envs of one process write their results."""

    obs: ObsWriter
    reward: Any  # [n] float64        memoryviews: faster than numpy for writing single numbers
    terminated: Any  # [n] bool
    truncated: Any  # [n] bool
    extras: Mapping[str, NDArray[Any]]  # [n, *extra] by name
    beat: Any
    """[1] heartbeat counter, incremented with every step."""
    news: list[Seat]
    """Envs with infos or variable-size observations to send, in no particular order."""


class Seat:
    """An env and its position in shared memory.

    Args:
        env: The env. Only the thread that made it may call the methods.
        number: Its index in the vector env.
        at: Its position in `places`.
        places: Where results go.
        mode: The autoreset mode.
    """

    def __init__(self, env: Env, number: int, at: int, places: Places, mode: AutoresetMode) -> None:
        self.env, self.number, self.at = env, number, at
        self.infos: Infos = ()
        self.given: Any = None
        """Argument of the next call by the owning thread: an action, or arguments of `reset`."""
        self.loose: tuple[Any, ...] = ()
        """The variable-size parts of the observation, which are not in shared memory."""
        self._step, self._write, self._report = env.step, places.obs, places.news.append
        self._reward, self._terminated, self._truncated = places.reward, places.terminated, places.truncated
        self._extras, self._beat = places.extras, places.beat
        self._next_step, self._same_step = mode is AutoresetMode.NEXT_STEP, mode is AutoresetMode.SAME_STEP
        self._ended, self._steps = False, 0
        self._flagged = False  # whether a flag in shared memory may be True and needs clearing

    def step(self, action: Any) -> None:
        """Take an action; in NEXT_STEP mode, reset instead if the episode has ended.

        Raises:
            EnvError: The env raised, or its result does not match its spaces; names the env, step and action.
        """
        if self._ended and self._next_step:
            self.reset({})
            return
        try:
            at = self.at
            self._steps += 1
            obs, self._reward[at], terminated, truncated, info = self._step(action)
            if self._extras:
                info = self._put_extras(info, ended=bool(terminated or truncated))
            if self._flagged or terminated or truncated:
                self._terminated[at], self._truncated[at] = terminated, truncated
                self._ended = self._flagged = bool(terminated or truncated)
                if self._ended:
                    self._steps = 0
                if self._ended and self._same_step:
                    # Copy: the env may write the reset's observation into the same array.
                    final = {"final_obs": copy.deepcopy(obs), "final_info": info}
                    obs, info = roaming(self.env.reset)
                    info = self._put_extras(info) if self._extras else info
                    self._ended = False
                    self.infos = (final, info)
            loose = self._write(at, obs)
            if info or loose or self.infos:
                self._note(info, loose)
        except Exception as error:
            raise self._failure(f"step {self._steps} with action {_short(action)}", error) from error
        self._beat[0] += 1

    def reset(self, how: dict[str, Any]) -> None:
        """Reset the env.

        Args:
            how: Keyword arguments of the env's `reset`: none, or `seed` and `options`.

        Raises:
            EnvError: As for `step`.
        """
        at = self.at
        try:
            obs, info = roaming(self.env.reset, **how)
            self._reward[at], self._terminated[at], self._truncated[at] = 0.0, False, False
            self._ended = self._flagged = False
            self._steps = 0
            info = self._put_extras(info) if self._extras else info
            self._note(info, self._write(at, obs))
        except Exception as error:
            raise self._failure(f"reset(seed={how.get('seed')})", error) from error
        self._beat[0] += 1

    def _note(self, info: dict[str, Any], loose: tuple[Any, ...]) -> None:
        """Keep infos and variable-size observations until `take_news`."""
        if info and not self.infos:
            self.infos = (info,)
        self.loose = loose
        if self.infos or loose:
            self._report(self)

    def take_news(self) -> tuple[Infos, tuple[Any, ...]]:
        """Return and clear the infos and variable-size observations."""
        news = self.infos, self.loose
        self.infos = self.loose = ()
        return news

    def _put_extras(self, info: dict[str, Any], *, ended: bool = False) -> dict[str, Any]:
        """Write the extras to shared memory and return the env's info without them.

        At an episode's end in SAME_STEP mode the info keeps the extras, because the reset overwrites them in shared
        memory.
        """
        read = info.pop(READ)
        for name, value in read.items():
            self._extras[name][self.at] = value
        if not (ended and self._same_step):
            return info
        return {**info, **{name: place[self.at].copy() for name, place in self._extras.items()}}

    def _failure(self, where: str, error: Exception) -> EnvError:
        if isinstance(error, EnvError):
            return EnvError(f"env {self.number} in {where}: {error}")
        return EnvError(f"env {self.number} raised in {where}: {describe(error)}. Step the env alone to debug it.")


def _short(action: Any) -> str:
    text = repr(action)
    return text if len(text) <= 80 else f"{text[:77]}..."
