"""Settings as keyword arguments: names, accepted types, Python's defaults and texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, cast

import pytest

from paceline.config.algorithm_settings import AlgorithmSettings
from paceline.config.algorithms import ALGORITHMS, Entry
from paceline.config.python_settings import POSITIONAL, KeywordSetting, keyword_settings
from paceline.config.train_config import TrainConfig, section_types

Choice = Literal["left", "right"]
Rate = float | Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class SettingsWithAliases(AlgorithmSettings):
    """Fields whose types have names."""

    choice: Choice = "left"
    """Which side."""
    rate: Rate = 0.1
    """How fast."""


def by_name(algo: str) -> dict[str, KeywordSetting]:
    return {one.name: one for one in keyword_settings(algo)}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_field_is_a_keyword_with_a_text_and_a_default(algo: str) -> None:
    found = by_name(algo)
    declared = {item.name for cls in section_types(algo).values() for item in fields(cls)}
    assert found.keys() == declared - set(POSITIONAL)
    assert [one.name for one in found.values() if not one.text] == []
    defaults = {one.name: one.default for one in found.values()}
    assert TrainConfig.from_flat(env="CartPole-v1", algo=algo, **defaults) == TrainConfig.from_flat(
        env="CartPole-v1", algo=algo, quiet=True
    )


def test_types_are_what_the_config_accepts() -> None:
    found = by_name("ppo")
    assert found["n_steps"].type_text == "int"
    assert found["output_dir"].type_text == "str | Path | None"
    assert found["hidden_sizes"].type_text == "Sequence[int]"
    assert found["wrappers"].type_text == "Sequence[str | Callable[..., Any]]"
    assert found["env_kwargs"].type_text == "Mapping[str, Any]"
    assert found["num_workers"].type_text == 'int | Literal["auto"] | None'
    assert found["activation"].type_text == 'Literal["tanh", "relu", "elu"]'


def test_named_types_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        ALGORITHMS, "named", Entry(cast("type[AlgorithmSettings]", SettingsWithAliases), "nowhere:NAMED")
    )
    found = by_name("named")
    assert found["choice"].type_text == 'Literal["left", "right"]'
    assert found["rate"].type_text == "float | Callable[[float], float]"


def test_defaults_are_source_text_and_left_out_where_the_text_names_them() -> None:
    found = by_name("ppo")
    assert found["n_steps"].default_text == "64"
    assert found["hidden_sizes"].default_text == "(64, 64)"
    assert found["lr_schedule"].default_text == '"constant"'
    assert found["batch_size"].default_text == found["env_kwargs"].default_text == ""
    assert found["quiet"].default is True
