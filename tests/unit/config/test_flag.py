"""Flags made from the fields of dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from paceline.config.flag import Flag, flags_of


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str
    """A name."""
    rate: float = 3e-4
    """A rate."""
    quiet: bool = False
    """A switch."""
    sizes: tuple[int, ...] = (64, 64)
    """Sizes."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Extras. Default: those of the env."""
    limit: float | None = None
    """A limit. Default: 0.95. It is soft."""
    start: Path | None = None
    """A path."""
    resume: bool | Path = False
    """Resume."""
    pin_cores: str | None = None
    """Cores."""
    mode: Literal["a", "b"] = "a"
    """A mode."""


FLAGS = {flag.name: flag for flag in flags_of(Settings, {})}


@pytest.mark.parametrize(
    ("name", "metavar", "note"),
    [
        ("name", "TEXT", "required"),
        ("rate", "NUMBER", "default: 0.0003"),
        ("quiet", "[true|false]", "default: false"),
        ("sizes", "[INT ...]", "default: 64 64"),
        ("extras", "[KEY=VALUE ...]", "default: those of the env"),
        ("limit", "NUMBER", "default: 0.95"),
        ("start", "PATH", "default: none"),
        ("resume", "[PATH]", "default: none"),
        ("mode", "a|b", "default: a"),
    ],
)
def test_help_shows_the_value_and_the_default(name: str, metavar: str, note: str) -> None:
    assert (FLAGS[name].metavar, FLAGS[name].note) == (metavar, note)


def test_the_sentence_about_the_default_is_not_in_the_text() -> None:
    assert FLAGS["limit"].text == "A limit. It is soft."


def test_defaults_of_a_command_replace_those_of_the_fields() -> None:
    changed = {flag.name: flag.note for flag in flags_of(Settings, {"rate": 1e-3, "limit": 0.5})}
    assert (changed["rate"], changed["limit"]) == ("default: 0.001", "default: 0.5")


@pytest.mark.parametrize(
    ("name", "many", "switch", "bare"),
    [("rate", False, False, None), ("quiet", False, True, "true"), ("sizes", True, False, None),
     ("extras", True, False, None), ("resume", False, False, "true"), ("pin_cores", False, False, "auto")],
)  # fmt: skip
def test_what_a_flag_takes(name: str, many: bool, switch: bool, bare: str | None) -> None:
    flag = FLAGS[name]
    assert (flag.many, flag.switch, flag.bare) == (many, switch, bare)


def test_a_flag_is_spelled_with_hyphens() -> None:
    assert Flag("n_steps", int, "", "").spelled == "--n-steps"
