"""YAML is read as plain values: no tag builds an object, no expression is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.config.plain_yaml import NotPlain, safe_load
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_missing_file_a_folder_and_bytes_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "directory"), (binary, "UTF-8")):
        with pytest.raises(ConfigError, match=f"cannot be read .*{reason}"):
            TrainConfig.from_yaml(path)


@pytest.mark.parametrize(
    "text",
    [
        "env: {env: !!python/object/apply:builtins.open ['MARKER', w]}",
        "env: {env_kwargs: {f: !!python/object/new:type {args: [a, [], {}]}}}",
        "env: !!python/object/apply:os.system ['touch MARKER']",
        "env: {env: !!python/name:os.system }",
        "!!python/module:os : 1",
        "env: {env: !custom x}",
    ],
)
def test_yaml_tags_are_refused_and_nothing_runs(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = write(tmp_path, text.replace("MARKER", str(marker)))
    with pytest.raises(ConfigError, match=r"must be plain YAML .*nothing is evaluated"):
        TrainConfig.from_yaml(path)
    assert not marker.exists()


@pytest.mark.parametrize("value", ["128*2", "${HOME}", "__import__('os').getpid()", "2 ** 7"])
def test_expressions_in_yaml_are_refused_not_evaluated(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"n_steps=.*must be an integer"):
        TrainConfig.from_yaml(write(tmp_path, yaml.safe_dump({"env": {"env": "X"}, "training": {"n_steps": value}})))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E6", 1e6),
        ("-2e3", -2000.0),
        ("1.5e3", 1500.0),
        ("e3", "e3"),
        ("3e", "3e"),
        ('{"a": [1, true, null]}', {"a": [1, True, None]}),
    ],
)
def test_numbers_with_an_exponent_are_numbers(text: str, value: Any) -> None:
    found = safe_load(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["a: 1\na: 2", "x: {b: 1, b: 1}", "a: [1", "d: 2024-99-99", "[" * 100_000])
def test_a_repeated_key_or_broken_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(NotPlain) as raised:
        safe_load(text)
    assert str(raised.value)
    assert "\n" not in str(raised.value)
