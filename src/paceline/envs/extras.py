"""Extras: data that lives beside the observation, read in the same breath as the step.

An env names them in an attribute `extras`:

    class Simulator(gym.Env):
        extras = {"true_state": Extra(shape=(13,), dtype="int8", read="true_state")}

        def true_state(self) -> np.ndarray: ...

They land in the slot like any other field, are handed to a `RewardShaper`, and cost no message: whoever steps the env
reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from paceline.errors import ConfigError

Every: TypeAlias = int | Literal["episode"]


@dataclass(frozen=True, slots=True)
class Extra:
    """One array beside the observation.

    Args:
        shape: Of one env's reading.
        dtype: Its numpy name.
        read: The env's method that returns it (a native vector env's returns all envs' at once, stacked); left out,
            it is the key of the info dict that has the extra's own name.
        every: Read after the reset and after every k-th step of an episode; or only at the `episode`'s end. In between
            the last reading stands.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    read: str = ""
    every: Every = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be read."""
        if self.every != "episode" and (not isinstance(self.every, int) or self.every < 1):
            raise ConfigError(f"extra every={self.every!r}: must be a number of steps from 1, or 'episode'.")
        try:
            np.dtype(self.dtype)
        except TypeError as error:
            raise ConfigError(f"extra dtype={self.dtype!r}: numpy has no such type. Use one like 'float32'.") from error
