"""Pickling of a worker's program, and the attribute that an error names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
from tests.jobs import Recorder

from paceline.errors import ConfigError
from paceline.memory.shared import Arena
from paceline.runtime.pickled_program import pack


def test_a_captured_object_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def program(arena: Arena, share: Any) -> Recorder:
        with lock:
            return Recorder(arena, share)

    with pytest.raises(ConfigError, match=r"captured 'lock' \(lock\): cannot be sent to workers.*--num-workers 0"):
        pack(program)


def test_the_error_names_the_flags_that_avoid_pickling() -> None:
    with pytest.raises(ConfigError, match=r"or use --num-workers 0 without --runtime ray\.$"):
        pack(threading.Lock(), "--num-workers 0 without --runtime ray")


def test_a_program_of_a_script_survives_with_what_it_captures() -> None:
    factor = 3
    source: Any = lambda arena, share: factor * share  # noqa: E731
    program: Any = cloudpickle.loads(pack(source))
    assert program(None, 7) == 21


class Holder:
    """A program whose attribute, item or slot cannot be pickled."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, arena: Any, share: Any) -> Any: ...


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("program", "path"),
    [
        (lambda: Holder(lock=threading.Lock()), r"program\.lock \(lock\)"),
        (lambda: Holder(fine=1, settings={"a": 1, "b": threading.Lock()}), r"program\.settings\['b'\] \(lock\)"),
        (lambda: Holder(inner=Slotted()), r"program\.inner\.lock \(lock\)"),
    ],
)
def test_the_error_names_the_path_to_what_cannot_be_pickled(program: Callable[[], Any], path: str) -> None:
    with pytest.raises(ConfigError, match=f"^{path}: cannot be sent to workers"):
        pack(program())
