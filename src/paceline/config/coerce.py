"""Converts a value from a flag, a YAML file or Python to the type of its setting.

A flag is text and YAML has types of its own (`1e6` is text in YAML 1.1), so the annotation of the setting decides, not
the type of the value. No text is evaluated as code: it becomes a number, a name or a path.
"""

from __future__ import annotations

import collections.abc
import math
import numbers
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from paceline.config.plain_yaml import NotPlain, safe_load
from paceline.errors import ConfigError, nearest

TRUE = {"true", "yes", "on", "1"}
FALSE = {"false", "no", "off", "0"}
NONE = {"none", "null"}
UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LARGEST_CORE = 4095
PAIR_BREAK = re.compile(r"[,\s]+(?=[A-Za-z_]\w*=)")
"""Between `a=1` and `b=2`, but not inside a value."""


class _Misfit(Exception):
    """The value cannot be read as the annotation."""


def coerce(value: Any, annotation: Any, name: str) -> Any:
    """Convert a value to the type of its setting.

    Args:
        value: Text from a flag, a list of texts, a YAML value or a Python object.
        annotation: The type of the setting, resolved (`typing.get_type_hints`).
        name: The setting, for the error text.

    Raises:
        ConfigError: The value does not fit; names the setting, the rule and the value.
    """
    try:
        return _read(value, annotation)
    except _Misfit as misfit:
        detail = f" ({misfit})" if str(misfit) else ""
        hint = f" {nearest(value, _choices(annotation))}" if isinstance(value, str) and _choices(annotation) else ""
        raise ConfigError(f"{name}={value!r}: must be {describe(annotation)}{detail}.{hint}") from None


def _read(value: Any, annotation: Any) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_union(value, args)
    if origin is Literal:
        return _read_literal(value, args)
    if origin is tuple:
        return tuple(_read(item, args[0]) for item in _items(value))
    if origin is dict:
        return _read_mapping(value)
    if origin is type:
        return _checked(value, isinstance(value, type))
    if origin is collections.abc.Callable:
        return _checked(value, callable(value))
    # A flag may arrive as a list of one text.
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return _SCALARS[annotation](value)


def _choices(annotation: Any) -> list[str]:
    """The allowed words of a `Literal` type, also inside a union; empty for other types."""
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return [str(arg) for arg in args]
    return [choice for arg in args for choice in _choices(arg)]


def _checked(value: Any, ok: bool) -> Any:
    if not ok:
        raise _Misfit
    return value


def _read_union(value: Any, members: Sequence[Any]) -> Any:
    if type(None) in members and (value is None or (isinstance(value, str) and value.strip().lower() in NONE)):
        return None
    for member in members:
        if member is type(None):
            continue
        try:
            return _read(value, member)
        except _Misfit:
            continue
    raise _Misfit


def _read_literal(value: Any, choices: Sequence[Any]) -> Any:
    text = value.strip().lower() if isinstance(value, str) else value
    return _checked(text, isinstance(text, str) and text in choices)


def _read_bool(value: Any) -> bool:
    text = str(value).strip().lower() if isinstance(value, bool | int | str) else ""
    return bool(_checked(text in TRUE, text in TRUE | FALSE))


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        raise _Misfit
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _Misfit from None
    if not math.isfinite(number):
        raise _Misfit("finite")
    return number


def _read_int(value: Any) -> int:
    if isinstance(value, bool):
        raise _Misfit
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)  # exact where a float would round
        except ValueError:
            pass
    number = _read_float(value)  # 1e6
    if not number.is_integer():
        raise _Misfit("whole")
    return int(number)


def _read_str(value: Any) -> str:
    # YAML reads a bare `0` as an int. It is accepted for text settings such as pin_cores.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return str(_checked(value, isinstance(value, str)))


def _read_path(value: Any) -> Path:
    return Path(_checked(value, isinstance(value, str | Path) and str(value) != ""))


_SCALARS: dict[Any, typing.Callable[[Any], Any]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
    Path: _read_path,
}


def _items(value: Any) -> list[Any]:
    """The items of a list setting: a sequence, `a,b`, `a b` or `[a, b]`."""
    if isinstance(value, str):
        return [item for item in re.split(r"[,\s]+", value.strip().removeprefix("[").removesuffix("]")) if item]
    if isinstance(value, list | tuple):
        return [item for part in value for item in (_items(part) if isinstance(part, str) else [part])]
    if isinstance(value, bool | float | Mapping | None):
        raise _Misfit
    return [value]


def _read_mapping(value: Any) -> dict[str, Any]:
    """A mapping, JSON text, or `key=value` texts."""
    if isinstance(value, Mapping):
        return {str(_checked(key, isinstance(key, str))): item for key, item in value.items()}
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _Misfit
    joined = " ".join(texts).strip()
    if not joined:
        return {}
    if joined.startswith("{"):
        parsed = _parsed(joined)
        return _read_mapping(_checked(parsed, isinstance(parsed, Mapping)))
    result: dict[str, Any] = {}
    for pair in [pair for text in texts for pair in PAIR_BREAK.split(text.strip())]:
        key, equals, item = pair.partition("=")
        if not equals or not key.strip():
            raise _Misfit(f"no key=value in {pair!r}")
        if key.strip() in result:
            raise _Misfit(f"{key.strip()!r} twice")
        result[key.strip()] = _parsed(item)
    return result


def _parsed(text: str) -> Any:
    try:
        return safe_load(text)
    except NotPlain as exc:
        raise _Misfit(str(exc)) from None


def describe(annotation: Any) -> str:
    """Describe the accepted values of a type, for error texts."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        parts = [describe(arg) for arg in args if arg is not type(None)]
        return " or ".join([*parts, *(["none"] if type(None) in args else [])])
    if origin is Literal:
        return " or ".join(repr(arg) for arg in args)
    if origin is tuple:
        return f"a list of {describe(args[0])}"
    if origin is dict:
        return "a mapping, JSON text or key=value pairs"
    if origin is type:
        return "a class"
    if origin is collections.abc.Callable:
        return "a callable"
    words = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path"}
    return words.get(annotation, "any value")


def duration_s(value: float | str) -> float:
    """Seconds in a duration: `90s`, `15m`, `2h`, `1d`, or a bare number of hours.

    Raises:
        ConfigError: It is not a duration, or not above zero.
    """
    text = str(value).strip().lower()
    unit = text[-1:] if text[-1:] in UNIT_S else ""
    try:
        seconds = _read_float(text.removesuffix(unit) if unit else text) * UNIT_S[unit or "h"]
    except _Misfit:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"duration={value!r}: must be a time above zero. Write 90s, 15m or 2h, or a bare number of hours."
        )
    return seconds


def core_list(text: str) -> tuple[int, ...]:
    """Parse core numbers such as `0-7`, `0,2,4` or a mix. Empty for `auto` and empty text: all allowed cores.

    Raises:
        ConfigError: It is not a list of cores.
    """
    if text.strip().lower() in ("", "auto"):
        return ()
    cores: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= LARGEST_CORE:
            raise ConfigError(
                f"pin_cores={text!r}: must be core numbers up to {LARGEST_CORE} ({part!r} is not). "
                "Write 0-7, 0,2,4 or auto."
            )
        cores.extend(range(first, last + 1))
    if len(set(cores)) != len(cores):
        raise ConfigError(f"pin_cores={text!r}: names a core twice. Write each once.")
    return tuple(cores)
