"""Messages between driver and worker."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from tests.jobs import Recorder

from paceline.runtime.messages import (
    CLOSE,
    packed_call,
    packed_exception,
    packed_result,
    receive_call,
    receive_result,
    unpacked_exception,
)


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    ends = multiprocessing.Pipe()
    yield ends
    for end in ends:
        end.close()


def test_a_call_arrives_with_its_arguments(pipe: tuple[Connection, Connection]) -> None:
    driver, worker = pipe
    driver.send_bytes(packed_call(Recorder.echo, (1, [2]), {"key": None}))
    assert receive_call(worker) == (Recorder.echo, (1, [2]), {"key": None})


def test_a_call_of_a_module_is_sent_by_name_and_one_of_a_script_as_code() -> None:
    def of_a_script(job: Any) -> int:
        return 42

    assert b"echo" in packed_call(Recorder.echo, (), {})
    with pytest.raises((pickle.PicklingError, AttributeError)):
        packed_call(of_a_script, (), {})  # a local function has no name to be found by
    of_a_script.__module__ = "__main__"
    call, _, _ = pickle.loads(packed_call(of_a_script, (), {}))
    assert call is not of_a_script
    assert call(None) == 42


def test_close_is_received_as_none(pipe: tuple[Connection, Connection]) -> None:
    driver, worker = pipe
    driver.send_bytes(CLOSE)
    assert receive_call(worker) is None


@pytest.mark.parametrize(("kind", "value"), [("ok", {"a": 1}), ("error", ("text", "trace")), ("exit", ("3", ""))])
def test_a_result_arrives_with_its_kind(kind: Any, value: Any, pipe: tuple[Connection, Connection]) -> None:
    driver, worker = pipe
    worker.send_bytes(packed_result(kind, value))
    assert receive_result(driver) == (kind, value)


class Refused(ValueError):
    """An exception of a user's module."""


class TwoArguments(Exception):
    """Cannot be unpickled: its `args` are not those of its constructor."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)


def test_an_exception_arrives_with_its_class_and_arguments() -> None:
    error = unpacked_exception(packed_exception(Refused("no", 3)))
    assert type(error) is Refused
    assert error.args == ("no", 3)


def test_a_class_of_the_script_arrives_as_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refused, "__module__", "__main__")  # sent by value
    assert isinstance(unpacked_exception(packed_exception(Refused("no"))), Refused)


@pytest.mark.parametrize("error", [None, TwoArguments("no", 3), Refused(threading.Lock()), SystemExit(3)])
def test_an_exception_that_cannot_be_sent_is_left_out(error: BaseException | None) -> None:
    assert packed_exception(error) == b""
    assert unpacked_exception(b"") is None


def test_an_exception_that_this_process_cannot_rebuild_is_left_out() -> None:
    assert unpacked_exception(b"garbage") is None
    assert unpacked_exception(pickle.dumps("text")) is None


def test_a_closed_pipe_ends_both_receivers(pipe: tuple[Connection, Connection]) -> None:
    driver, worker = pipe
    worker.close()
    with pytest.raises(EOFError):
        receive_result(driver)
    driver.close()
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.close()
    with pytest.raises(EOFError):
        receive_call(reader)
    reader.close()
