"""What a vector env asks of a single env now and then. Called where the env is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from paceline.envs.make import Env


def call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], env: Env, number: int) -> Any:  # noqa: ARG001
    """A method's result, or an attribute; wrappers are looked through."""
    found = env.get_wrapper_attr(name)
    return found(*args, **kwargs) if callable(found) else found


def get_attr(name: str, env: Env, number: int) -> Any:  # noqa: ARG001
    """An attribute, callable or not; wrappers are looked through."""
    return env.get_wrapper_attr(name)


def set_attr(name: str, values: Sequence[Any], env: Env, number: int) -> None:
    """Set an attribute where it is, or on the outermost wrapper."""
    env.set_wrapper_attr(name, values[number])


def is_wrapped(wrapper: type[Any], env: Env, number: int) -> bool:  # noqa: ARG001
    """Whether one of the env's wrappers is of this class."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, wrapper):
            return True
        env = env.env
    return False


def has_attr(name: str, env: Env, number: int) -> bool:  # noqa: ARG001
    """Whether it has an attribute; wrappers are looked through."""
    return env.has_wrapper_attr(name)


def put_attr(name: str, value: Any, env: Env, number: int) -> None:  # noqa: ARG001
    """Set an attribute of the outermost wrapper, which hides one of the same name further in."""
    setattr(env, name, value)
