"""The same code with other names."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any


def with_names(original: Any, **names: Any) -> Any:
    """A function or method that is the original but for what some of its module's names mean to it."""
    function = getattr(original, "__func__", original)
    other = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    other.__kwdefaults__ = function.__kwdefaults__
    return MethodType(other, original.__self__) if isinstance(original, MethodType) else other
