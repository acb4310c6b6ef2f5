"""A rebound function sees other globals; the original and its module stay as they are."""

from __future__ import annotations

from paceline.integrations.cyborg.rebind import with_names

FACTOR = 2


def scaled(value: int, offset: int = 1, *, sign: int = 1) -> int:
    """Depends on a global name."""
    return sign * (FACTOR * value + offset)


class Scaler:
    """Has a method that depends on a global name, and one with a closure."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def scaled(self, value: int) -> int:
        """Depends on the object and on a global name."""
        return FACTOR * value + self.shift


def test_a_function_gets_other_globals_and_keeps_its_defaults() -> None:
    other = with_names(scaled, FACTOR=10)
    assert (other(1), other(1, 5), other(1, sign=-1)) == (11, 15, -11)
    assert other.__name__ == "scaled"
    assert (scaled(1), FACTOR) == (3, 2)


def test_a_method_stays_bound_to_its_object() -> None:
    one, another = Scaler(100), Scaler(200)
    one.scaled = with_names(one.scaled, FACTOR=3)  # type: ignore[method-assign]
    assert (one.scaled(1), another.scaled(1)) == (103, 202)
    one.shift = 0
    assert one.scaled(1) == 3


def test_closures_are_kept() -> None:
    def outer(step: int) -> object:
        def inner(value: int) -> int:
            return FACTOR * value + step

        return inner

    assert with_names(outer(7), FACTOR=5)(1) == 12
