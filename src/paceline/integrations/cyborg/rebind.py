"""`with_names`: copies a function with some global names replaced, to patch CybORG without changing its modules."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any


def with_names(original: Any, **names: Any) -> Any:
    """A copy of a function or bound method in which the given global names have other values.

    Args:
        original: The function or method. It is not changed.
        **names: Values of global names inside the copy.
    """
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
