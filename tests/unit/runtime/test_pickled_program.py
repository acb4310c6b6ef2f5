"""Pickling of a worker's program, and the attribute that an error names."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.jobs import Recorder

from paceline.errors import ConfigError
from paceline.memory.shared import Arena
from paceline.runtime.pickled_program import pack


def test_what_cannot_be_sent_is_named_before_anything_starts() -> None:
    lock = threading.Lock()

    def program(arena: Arena, share: Any) -> Recorder:
        with lock:
            return Recorder(arena, share)

    with pytest.raises(ConfigError, match=r"captured 'lock' \(lock\): cannot be sent to workers.*--num-workers 0"):
        pack(program)
