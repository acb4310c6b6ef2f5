"""Occasional operations on a single env (methods, attributes), called in the process that owns the env."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from paceline.envs.make import Env


def call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], env: Env, number: int) -> Any:  # noqa: ARG001
    """Call a method, or get an attribute that is not callable; searches through wrappers."""
    found = env.get_wrapper_attr(name)
    return found(*args, **kwargs) if callable(found) else found


def get_attr(name: str, env: Env, number: int) -> Any:  # noqa: ARG001
    """Get an attribute, callable or not; searches through wrappers."""
    return env.get_wrapper_attr(name)


def set_attr(name: str, values: Sequence[Any], env: Env, number: int) -> None:
    """Set an attribute on the wrapper or env that has it; on the outermost wrapper if none has."""
    env.set_wrapper_attr(name, values[number])


def is_wrapped(wrapper: type[Any], env: Env, number: int) -> bool:  # noqa: ARG001
    """Whether one of the env's wrappers is of this class."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, wrapper):
            return True
        env = env.env
    return False


def has_attr(name: str, env: Env, number: int) -> bool:  # noqa: ARG001
    """Whether the env or one of its wrappers has an attribute."""
    return env.has_wrapper_attr(name)


def put_attr(name: str, value: Any, env: Env, number: int) -> None:  # noqa: ARG001
    """Set an attribute on the outermost wrapper; it hides an inner attribute of the same name."""
    setattr(env, name, value)
