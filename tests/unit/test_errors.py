"""Errors: exit codes, texts, and checks of settings."""

from __future__ import annotations

import inspect
import math

import pytest

from paceline import errors
from paceline.errors import (
    ConfigError,
    MissingExtra,
    PacelineError,
    WorkerDied,
    WorkerLost,
    check_optional,
    check_range,
    closest,
    nearest,
)


def test_only_invalid_settings_exit_with_code_2() -> None:
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PacelineError)]
    assert {kind for kind in classes if kind.exit_code == 2} == {ConfigError, MissingExtra}
    assert {kind.exit_code for kind in classes} == {1, 2}


def test_every_error_is_in_the_overview() -> None:
    assert errors.__doc__ is not None
    named = {word for line in errors.__doc__.splitlines() for word in line.replace("─", " ").split()}
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, PacelineError):
            assert name in named


def test_a_missing_extra_says_how_to_install_it() -> None:
    text = str(MissingExtra("training on a cluster", "ray"))
    assert "pip install 'paceline[ray]'" in text
    assert "in a checkout: pip install -e '.[ray]'" in text


def test_a_lost_worker_keeps_its_text_apart_from_the_location() -> None:
    error = WorkerDied("worker 3 died", worker=3, detail="in env.py\nline 7", cause="env.py:7")
    assert isinstance(error, WorkerLost)
    assert str(error) == "worker 3 died\n\nin env.py\nline 7"
    assert (error.text, error.worker, error.cause) == ("worker 3 died", 3, "env.py:7")
    assert str(WorkerDied("worker 3 died")) == "worker 3 died"


def test_an_unknown_name_gets_the_nearest_or_all() -> None:
    assert nearest("imapla", ["ppo", "impala", "dqn"]) == "Did you mean 'impala'?"
    assert nearest("zzzzzz", ["ppo", "dqn"]) == "Known: dqn, ppo."


def test_a_name_like_none_of_many_gets_no_suggestion_and_no_list() -> None:
    assert nearest("zzzzzz", map(str, range(50))) == "None of the 50 known names is similar."


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("imapla", "impala"), ("hidden", "hidden_sizes"), ("batchsize", "batch_size"), ("IMPALA", "impala"),
     ("sac", None), ("verbose", None), ("lr", None), ("clip", None), ("", None)],
)  # fmt: skip
def test_only_names_that_are_near_are_suggested(typed: str, meant: str | None) -> None:
    known = ["impala", "a3c", "hidden_sizes", "batch_size", "track", "save_freq", "clip_range", "clip_range_vf"]
    assert closest(typed, known) == meant


@pytest.mark.parametrize("value", [1, 4, 2.5])
def test_values_in_range_pass(value: float) -> None:
    check_range("x", value, "", at_least=1, at_most=4)
    check_range("x", value, "", above=0)


@pytest.mark.parametrize("value", [0.99, 4.01, math.nan, math.inf, True, "2", None])
def test_values_outside_the_range_raise_with_rule_and_hint(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^x=.*: must be at least 1 and at most 4\. Try 2\.$"):
        check_range("x", value, "Try 2.", at_least=1, at_most=4)  # type: ignore[arg-type]


def test_only_an_optional_value_may_be_left_out() -> None:
    check_optional("x", None, "", at_least=1)
    check_optional("x", 1, "", at_least=1)
    with pytest.raises(ConfigError, match=r"^x=0: must be at least 1\. Leave it out\.$"):
        check_optional("x", 0, "Leave it out.", at_least=1)


def test_an_exclusive_bound_excludes_itself() -> None:
    with pytest.raises(ConfigError, match="x=0: must be above 0"):
        check_range("x", 0, "", above=0)
