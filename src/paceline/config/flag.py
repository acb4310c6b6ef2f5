"""One command-line flag, made from a field of a settings dataclass: what it takes, and its help text and default."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, get_type_hints

from paceline.config.help_texts import field_help

BARE = {"pin_cores": "auto"}
"""The value of a flag that is given without one. (A bare boolean flag means true.)"""

DEFAULT = re.compile(r"\s*\bDefault: (.+?)\.(?=\s|$)", re.DOTALL)
"""The sentence of a help text that says the default where the field has none."""

METAVARS = {"config": "FILE", "duration": "TIME", "buffer_size": "SIZE", "resume": "PATH"}
"""What stands for the values of these settings in help; of all others, it follows from the type."""

METAVARS_OF_TYPES: dict[Any, str] = {bool: "true|false", int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. Its value stays text; `coerce` converts it later."""

    name: str
    """The setting, with underscores."""
    annotation: Any
    """The type of the field."""
    text: str
    """The help text, without the default."""
    note: str
    """What stands after the text: `default: 128`, or `required`."""

    @property
    def spelled(self) -> str:
        """The flag as users write it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def many(self) -> bool:
        """Whether it takes any number of values."""
        return bool({tuple, dict} & _kinds(self.annotation))

    @property
    def switch(self) -> bool:
        """Whether it is on or off, so that `--no-NAME` turns it off."""
        return _kinds(self.annotation) == {bool}

    @property
    def bare(self) -> str | None:
        """Its value if given without one; None if a value is required."""
        return BARE.get(self.name, "true" if bool in _kinds(self.annotation) else None)

    @property
    def metavar(self) -> str:
        """What stands for the value in help: `INT`, `[true|false]` if it may be left out."""
        text = METAVARS.get(self.name) or _metavar(self.annotation)
        return f"[{text}]" if self.many or self.bare is not None else text


def flags_of(cls: type[Any], defaults: Mapping[str, Any]) -> list[Flag]:
    """The flags of a settings dataclass.

    Args:
        cls: The dataclass.
        defaults: Defaults that replace those of the fields in help.
    """
    hints, texts = get_type_hints(cls), field_help(cls)
    return [_flag(item, hints[item.name], texts.get(item.name, ""), defaults) for item in fields(cls)]


def _flag(item: Field[Any], annotation: Any, text: str, defaults: Mapping[str, Any]) -> Flag:
    said = DEFAULT.search(text)
    value = defaults.get(item.name, item.default if item.default_factory is MISSING else item.default_factory())
    if value in ((), {}) or (value is False and annotation is not bool):  # resume: a path, or not at all
        value = None
    note = "required" if value is MISSING else f"default: {said[1] if said and value is None else _shown(value)}"
    return Flag(item.name, annotation, DEFAULT.sub("", text).strip(), note)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return " ".join(map(str, value))
    return str(value)


def _members(annotation: Any) -> list[Any]:
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    return [arg for arg in typing.get_args(annotation) if arg is not type(None)] if union else [annotation]


def _kinds(annotation: Any) -> set[Any]:
    return {typing.get_origin(member) or member for member in _members(annotation)}


def _metavar(annotation: Any) -> str:
    words: list[str] = []
    for member in _members(annotation):
        origin, args = typing.get_origin(member), typing.get_args(member)
        if origin is Literal:
            words.extend(str(arg) for arg in args)
        elif origin is tuple:
            words.append(f"{_metavar(args[0])} ...")
        elif origin is dict:
            words.append("KEY=VALUE ...")
        elif member in METAVARS_OF_TYPES:
            words.append(METAVARS_OF_TYPES[member])
    return "|".join(words)
