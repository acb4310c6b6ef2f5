"""Prefixes for nested state in one flat dict."""

from __future__ import annotations

import numpy as np

from paceline.memory.parts import part, under


def test_part_is_the_inverse_of_under() -> None:
    inner = {"weights": np.arange(3.0), "deep/step": np.array(4)}
    flat = {**under("learner/", inner), **under("league/", {"weights": np.zeros(2)})}
    assert set(flat) == {"learner/weights", "learner/deep/step", "league/weights"}
    found = part(flat, "learner/")
    assert found.keys() == inner.keys()
    assert all(found[name] is inner[name] for name in inner), "arrays are not copied"


def test_only_the_first_occurrence_of_a_prefix_is_removed() -> None:
    assert list(part({"a/a/x": np.zeros(1), "ba/x": np.zeros(1)}, "a/")) == ["a/x"]


def test_a_prefix_that_no_key_has_gives_an_empty_state() -> None:
    assert part({"a/x": np.zeros(1)}, "b/") == {}
    assert under("a/", {}) == {}
