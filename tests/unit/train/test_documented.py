"""`help` and `inspect.signature` of the Python classes show every setting."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields

import pytest

from paceline import A3C, APPO, DQN, IMPALA, PPO
from paceline.config.help_texts import field_help
from paceline.config.python_settings import POSITIONAL
from paceline.config.train_config import section_types
from paceline.train.agent import Agent


@pytest.mark.parametrize("cls", [PPO, IMPALA, APPO, A3C, DQN])
def test_the_signature_has_every_setting_with_its_default(cls: type[Agent]) -> None:
    env, *others = inspect.signature(cls).parameters.values()
    assert (env.name, env.default) == ("env", inspect.Parameter.empty)
    shown = {one.name: one.default for one in others}
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in others)
    declared = [item for section in section_types(cls.algo).values() for item in fields(section)]
    assert shown.keys() == {"verbose", *(item.name for item in declared)} - set(POSITIONAL)
    assert shown["verbose"] == 0
    assert shown["quiet"] is True
    assert [
        item.name
        for item in declared
        if isinstance(item.default, int | float | str) and item.name not in (*POSITIONAL, "quiet")
        if shown[item.name] != item.default
    ] == []


def test_annotations_are_shown_without_quotes() -> None:
    text = str(inspect.signature(PPO))
    assert text.startswith("(env: str | Callable[..., Any], *, verbose: int = 0, n_steps: int = 64, ")
    assert "output_dir: str | Path | None = None" in text


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_help_shows_the_help_text_of_every_setting(cls: type[Agent]) -> None:
    page = pydoc.plain(pydoc.render_doc(cls))
    words = " ".join(page.replace("|", " ").split())
    own, run = section_types(cls.algo)["training"], section_types(cls.algo)["run"]
    texts = field_help(own) | {name: text for name, text in field_help(run).items() if name not in ("quiet", "algo")}
    del texts["output_dir"]  # whose default is another one in Python
    assert [name for name, text in texts.items() if " ".join(text.replace("|", " ").split()) not in words] == []
    assert "__signature__" not in page
    assert " verbose: 1 shows progress while learning" in page


def test_the_docstring_begins_with_that_of_the_class() -> None:
    assert (PPO.__doc__ or "").startswith("Proximal policy optimisation.\n\nArgs:\n    env: ")
    assert "    n_steps: int = 64\n        Steps each env takes before an update (T).\n" in (PPO.__doc__ or "")


def test_a_class_of_the_users_own_shows_its_own_constructor() -> None:
    class Mine(PPO):
        """My own."""

        def __init__(self, size: int) -> None:
            super().__init__("CartPole-v1", n_steps=size)

    assert list(inspect.signature(Mine).parameters) == ["size"]
    assert Mine.__doc__ == "My own."
    assert (Agent.__doc__ or "").startswith("A policy")
