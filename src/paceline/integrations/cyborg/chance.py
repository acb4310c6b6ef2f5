"""Gives each CybORG env its own random generator, although CybORG draws from Python's global one.

    CybORG's modules --- choice(...), random.shuffle(...) ---> the generator of the env that is being stepped
                                                         `---> Python's global generator, if no env is being stepped

The functions of `random` are patched in CybORG's modules, once per process. Envs then do not affect each other's random
streams, an episode equals that of the stock simulator after `random.seed(seed)`, and a step has no overhead: saving and
loading the global state around each step would cost about 30 microseconds.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

_GLOBAL: random.Random = random.choice.__self__  # type: ignore[attr-defined]
"""Python's global generator: the functions of the module `random` are its bound methods."""
_drawn_from = _GLOBAL
"""The generator that CybORG draws from now."""
_lock = threading.Lock()


class Chance:
    """The random generator of one env. Inside `with chance:` CybORG draws from it, and other threads' envs block."""

    def __init__(self) -> None:
        self.generator = random.Random()

    def __enter__(self) -> None:
        global _drawn_from
        _lock.acquire()
        _drawn_from = self.generator

    def __exit__(self, *_: object) -> None:
        global _drawn_from
        _drawn_from = _GLOBAL
        _lock.release()


class _Module:
    """Replacement of the module `random` in CybORG's modules; draws from the current env's generator."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(random, name)
        return getattr(_drawn_from, name) if getattr(found, "__self__", None) is _GLOBAL else found


_MODULE = _Module()


def redirect(package: str) -> None:
    """Patch the imported modules of a package to draw from the current env's generator."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != package or module is None:
            continue
        names = vars(module)
        for key, value in list(names.items()):
            if value is random:
                names[key] = _MODULE
            elif isinstance(value, BuiltinMethodType | MethodType) and value.__self__ is _GLOBAL:
                names[key] = _drawing(value.__name__)


def _drawing(name: str) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        return getattr(_drawn_from, name)(*args, **kwargs)

    return draw
