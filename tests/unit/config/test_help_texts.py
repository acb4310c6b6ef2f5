"""Every setting has a help text: the docstring under its field."""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields
from typing import Any

import pytest

from paceline.config import help_texts
from paceline.config.help_texts import field_help
from paceline.config.train_config import section_types


@pytest.mark.parametrize("cls", list(section_types("ppo").values()))
def test_every_field_has_a_help_text(cls: type[Any]) -> None:
    texts = field_help(cls)
    assert [item.name for item in fields(cls) if not texts.get(item.name, "").endswith(".")] == []


@dataclass(frozen=True)
class Base:
    steps: int = 1
    """Steps
    of the base."""
    silent: int = 2


@dataclass(frozen=True)
class Derived(Base):
    steps: int = 3
    """Steps of the derived class."""


def test_texts_are_on_one_line_and_inherited_and_replaced() -> None:
    assert field_help(Base) == {"steps": "Steps of the base."}
    assert field_help(Derived) == {"steps": "Steps of the derived class."}


def test_each_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse

    def counted(source: str) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(ast, "parse", counted)
    help_texts._classes.cache_clear()
    for cls in section_types("ppo").values():
        field_help(cls)
    assert len(parsed) == 2  # sections.py and ppo_settings.py
