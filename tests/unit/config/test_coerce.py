from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config.coerce import coerce, core_list, describe, duration_s
from paceline.errors import ConfigError

Workers = int | Literal["auto"]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("1e6", int, 1_000_000),
        (1e6, int, 1_000_000),
        ("1_000", int, 1000),
        ("-3", int, -3),
        (np.int64(5), int, 5),
        ("9007199254740993", int, 2**53 + 1),
        ("3e-4", float, 3e-4),
        (1, float, 1.0),
        (np.float32(0.5), float, 0.5),
        ("true", bool, True),
        ("No", bool, False),
        (0, bool, False),
        ("auto", Workers, "auto"),
        ("AUTO", Workers, "auto"),
        ("4", Workers, 4),
        ("none", float | None, None),
        (None, float | None, None),
        ("0.1", float | None, 0.1),
        ("64,64", tuple[int, ...], (64, 64)),
        ("[64, 32]", tuple[int, ...], (64, 32)),
        (["64", "1e2"], tuple[int, ...], (64, 100)),
        (64, tuple[int, ...], (64,)),
        ([], tuple[int, ...], ()),
        ("1e2 8", tuple[int, ...], (100, 8)),
        ("runs/x", bool | Path, Path("runs/x")),
        ("true", bool | Path, True),
        (0, str | None, "0"),
        ("", str | None, ""),
        ({"a": 1}, dict[str, Any], {"a": 1}),
        ('{"a": [1, 2], "b": {"c": null}}', dict[str, Any], {"a": [1, 2], "b": {"c": None}}),
        (
            ["cpu_ms=1e-1", "name=two words", "on=true"],
            dict[str, Any],
            {"cpu_ms": 0.1, "name": "two words", "on": True},
        ),
        ("a=1 b=x=y,c=[1, 2]", dict[str, Any], {"a": 1, "b": "x=y", "c": [1, 2]}),
        ("", dict[str, Any], {}),
        ("x", Any, "x"),
    ],
)
def test_coerce_reads(value: Any, annotation: Any, expected: Any) -> None:
    result = coerce(value, annotation, "setting")
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("1.5", int),
        (True, int),
        ("abc", int),
        ("1e400", int),
        ("nan", float),
        ("inf", float),
        (10**400, float),
        (None, int),
        ("2", bool),
        (1.0, bool),
        ("atuo", Workers),
        (True, str),
        ("", Path),
        (True, tuple[int, ...]),
        ("64,x", tuple[int, ...]),
        ({1: 2}, dict[str, Any]),
        ("a", dict[str, Any]),
        ("=1", dict[str, Any]),
        ("{a: 1", dict[str, Any]),
        ("a=1 a=2", dict[str, Any]),
        (5, dict[str, Any]),
        ("int", type[Any]),
        ("f", Callable[..., Any]),
        ([1, 2], int),
    ],
)
def test_coerce_refuses_with_name_value_and_rule(value: Any, annotation: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        coerce(value, annotation, "setting")
    assert str(raised.value).startswith(f"setting={value!r}: must be {describe(annotation)}")


def test_a_misspelt_choice_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"start_method='forksever': .*Did you mean 'forkserver'\?"):
        coerce("forksever", Literal["forkserver", "spawn"] | None, "start_method")


@pytest.mark.parametrize(
    "text",
    [
        "x=!!python/object/apply:builtins.open ['{marker}', 'w']",
        "x=!!python/name:os.system",
        '{{"x": !!python/object/apply:builtins.open ["{marker}", "w"]}}',
    ],
)
def test_python_tags_in_flags_are_refused_and_nothing_is_evaluated(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(ConfigError, match="env_kwargs"):
        coerce([text.format(marker=marker)], dict[str, Any], "env_kwargs")
    assert not marker.exists()


@pytest.mark.parametrize("text", ["2*64", "64+64", "__import__('os').getpid()", "1e3*2", "0x40"])
def test_expressions_are_not_evaluated(text: str) -> None:
    with pytest.raises(ConfigError):
        coerce(text, int, "n_steps")
    assert coerce([f"x={text}"], dict[str, Any], "env_kwargs")["x"] in (text, 0x40)


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_every_integer_survives_as_text(number: int) -> None:
    assert coerce(str(number), int, "n") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_survives_as_text(number: float) -> None:
    assert coerce(repr(number), float, "x") == number


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text: str) -> None:
    for annotation in (int, float, bool, Workers, tuple[int, ...], dict[str, Any], float | str | None):
        # Reads it or refuses it; any other exception fails the test.
        with contextlib.suppress(ConfigError):
            coerce(text, annotation, "setting")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("1.0", 3600), (0.5, 1800), ("1.5H", 5400)],
)
def test_durations(text: float | str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0", 0, "-5m", "5 minutes", "s", "1e400h", "nan", "infh", True])
def test_bad_durations_are_refused(text: float | str) -> None:
    with pytest.raises(ConfigError, match=r"duration=.*90s, 15m or 2h"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("", ()), ("auto", ()), ("3", (3,)), ("0-3", (0, 1, 2, 3)), ("0,2,4", (0, 2, 4)), ("0-1, 8", (0, 1, 8))],
)
def test_core_lists(text: str, cores: tuple[int, ...]) -> None:
    assert core_list(text) == cores


@pytest.mark.parametrize("text", ["3-1", "a", "0,,1", "-1", "0-999999999", "0,0", "0-2,1"])
def test_bad_core_lists_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="pin_cores="):
        core_list(text)
