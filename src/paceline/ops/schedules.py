"""Schedules: how a setting changes over the budget.

A number changes by a named schedule, which is a factor. To add one, add it here and to the `Schedule` of the settings.
A function of the user's gives the value itself, as in stable-baselines3.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping

from paceline.errors import ConfigError
from paceline.moved import current_module

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,  # noqa: ARG005 - the same at any progress
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""By name: the factor of the initial value after the fraction `progress` (0 to 1) of the budget."""


def value_at(name: str, setting: float | str | Callable[[float], float], schedule: str) -> Callable[[float], float]:
    """Return the function that gives the value of a setting at a progress from 0 to 1.

    Args:
        name: The setting, for error texts.
        setting: The initial value; or a function of the remaining progress (1 to 0), or its import path.
        schedule: Name of the schedule of an initial value.

    Raises:
        ConfigError: The function cannot be imported or called, or a value is not a number from 0 on.
    """
    if not isinstance(setting, str) and not callable(setting):
        factor = SCHEDULES[schedule]
        return lambda progress: setting * factor(progress)
    function = _imported(name, setting) if isinstance(setting, str) else setting

    def value(progress: float) -> float:
        remaining = 1.0 - progress
        try:
            found = float(function(remaining))
        except Exception as error:
            raise ConfigError(
                f"{name}: its function raised {type(error).__name__} at remaining progress {remaining:g}: {error}. It "
                "takes one number, 1 at the start and 0 at the end, and returns one."
            ) from error
        if not 0.0 <= found < math.inf:
            raise ConfigError(
                f"{name}: its function must return a finite number from 0 on (got {found:g} at remaining progress "
                f"{remaining:g})."
            )
        return found

    value(0.0)  # so that a function that does not work is an error at the start
    return value


def _imported(name: str, path: str) -> Callable[[float], float]:
    module, _, attribute = path.partition(":")
    if path.startswith("<"):
        raise ConfigError(
            f"{name}: the run used {path}, which has no import path and is not saved. Pass it again in Python "
            f"({name}=...), or define it at the top of a module and give module:function."
        )
    try:
        found = vars(importlib.import_module(current_module(module)))[attribute]
    except (ImportError, KeyError) as error:
        raise ConfigError(
            f"{name}={path!r}: cannot be imported ({type(error).__name__}: {error}). Run from its folder."
        ) from error
    if not callable(found):
        raise ConfigError(f"{name}={path!r}: must be a function (got a {type(found).__name__}).")
    function: Callable[[float], float] = found
    return function
