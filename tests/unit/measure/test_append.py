"""Append-only files: CSV tables and TensorBoard events."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import CheckpointError
from paceline.measure import append
from paceline.measure.append import AppendFile, EventFile, Table

HEADER = ("steps", "reward")


def table(path: Path, resume_steps: int | None = None, header: tuple[str, ...] = HEADER) -> Table:
    return Table(path, header, step_column="steps", resume_steps=resume_steps)


def write(path: Path, rows: list[list[str]]) -> str:
    it = table(path)
    for row in rows:
        it.add_row(row)
    it.close()
    return path.read_text()


def test_rows_are_written_together_at_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    it = table(path)
    it.add_row(["1", "0.5"])
    it.add_row(["2", "0.7"])
    assert path.read_text() == "steps,reward\n"
    it.flush()
    assert path.read_text() == "steps,reward\n1,0.5\n2,0.7\n"
    it.add_row(["3", "0.9"])
    it.close()
    it.close()  # idempotent
    assert path.read_text().endswith("3,0.9\n")


def test_a_new_table_replaces_an_old_one_and_a_resumed_one_keeps_rows_up_to_the_step(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write(path, [["1", "a"], ["2", "b"], ["3", "c"]])
    with path.open("a") as file:
        file.write("4,cut o")  # by a process that was killed
    resumed = table(path, resume_steps=2)
    resumed.add_row(["3", "again"])
    resumed.close()
    assert path.read_text() == "steps,reward\n1,a\n2,b\n3,again\n"
    assert write(path, []) == "steps,reward\n"


def test_columns_that_an_older_table_lacks_stay_empty(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write(path, [["1", "a"]])
    table(path, resume_steps=9, header=("reward", "new", "steps")).close()
    assert path.read_text() == "reward,new,steps\na,,1\n"


def test_added_columns_are_empty_in_earlier_rows_and_stay_when_resumed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    it = table(path)
    it.add_row(["1", "a"])
    assert it.add_columns(["mine", "other"])
    assert it.header == (*HEADER, "mine", "other")
    it.add_row(["2", "b", "x", ""])
    it.close()
    assert path.read_text() == "steps,reward,mine,other\n1,a,,\n2,b,x,\n"
    resumed = table(path, resume_steps=2, header=("steps", "new", "reward"))
    assert resumed.header == ("steps", "new", "reward", "mine", "other")
    resumed.close()
    assert path.read_text() == "steps,new,reward,mine,other\n1,,a,,\n2,,b,x,\n"


@pytest.mark.parametrize("fails", ["write", "replace"])
def test_columns_are_not_added_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    it = table(tmp_path / "t.csv")
    it.add_row(["1", "a"])

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, full)
        assert not it.add_columns(["mine"])
        it.add_row(["2", "b"])
    assert it.header == HEADER
    assert it.add_columns(["mine"])
    it.add_row(["3", "c", "x"])
    it.close()
    assert (tmp_path / "t.csv").read_text() == "steps,reward,mine\n1,a,\n2,b,\n3,c,x\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("other,reward\n", "its columns are not those of this version"),
        ("unknown,steps\n", "its columns are not those of this version"),
        ("steps,reward\n1,a\nx,b\n", "line 3: not a row of this table"),
        ("steps,reward\n1,a,3\n", "line 2: not a row of this table"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_and_kept(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=text):
        table(path, resume_steps=5)
    assert path.read_text() == content


def test_a_failed_write_leaves_whole_rows_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it, real = AppendFile(tmp_path / "f"), os.write
    it.add(b"first\n")
    it.flush()

    def half_then_full(fd: int, data: Any) -> int:
        if len(data) > 4:
            return real(fd, bytes(data[:4]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half_then_full)
    with caplog.at_level(logging.WARNING):
        for line in (b"second\n", b"third!\n"):
            it.add(line)
            it.flush()
    assert (tmp_path / "f").read_bytes() == b"first\n"
    assert caplog.text.count("No space left on device") == 1, "one warning until it works again"
    monkeypatch.setattr(os, "write", real)
    it.close()
    assert (tmp_path / "f").read_bytes() == b"first\nsecond\nthird!\n"


def test_rows_beyond_the_memory_limit_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "KEEP_BYTES", 10)
    it, real = AppendFile(tmp_path / "f"), os.write

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    it.add(b"x" * 11)
    it.flush()
    it.add(b"kept\n")
    it.flush()
    monkeypatch.setattr(os, "write", real)
    it.close()
    assert (tmp_path / "f").read_bytes() == b"kept\n"


def test_event_files_of_later_sessions_sort_after_earlier_ones(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sessions = [(None, [(1, 0.5), (2, 0.6), (3, 0.7)]), (2, [(3, 9.0)])]
    names = []
    for resume_steps, scalars in sessions:
        events = EventFile(tmp_path, resume_steps=resume_steps)
        for step, number in scalars:
            events.add_scalars(step, {"time/fps": number})
        events.close()
        names.append(events.path.name)
    assert names == sorted(names)
    assert len(set(names)) == 2
    log = EventAccumulator(str(tmp_path))
    log.Reload()
    assert [(each.step, round(each.value, 3)) for each in log.Scalars("time/fps")] == [(1, 0.5), (2, 0.6), (3, 9.0)]


def test_the_last_row_gets_further_cells(tmp_path: Path) -> None:
    path, header = tmp_path / "t.csv", ("steps", "reward", "score")
    it = table(path, header=header)
    it.complete_last_row({"score": "7"})
    assert path.read_text() == "steps,reward,score\n", "no row yet"
    it.add_row(["1", "0.5", ""])
    it.add_row(["2", "0.7", ""])
    it.complete_last_row({"score": "8"})
    it.complete_last_row({"reward": "0.1", "score": "5"}, replace=False)
    assert path.read_text() == "steps,reward,score\n1,0.5,\n2,0.7,8\n"
    it.add_row(["3", "0.9", ""])
    it.close()
    resumed = table(path, 2, header)
    resumed.complete_last_row({"score": "9"})
    resumed.complete_last_row({"reward": "1.5"})
    resumed.add_row(["4", "0.1", ""])
    resumed.close()
    assert path.read_text() == "steps,reward,score\n1,0.5,\n2,1.5,9\n4,0.1,\n"


def test_a_full_disk_leaves_the_last_row_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    it = table(path)
    it.add_row(["1", ""])
    it.flush()

    def full(fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        it.complete_last_row({"reward": "3"})
        it.add_row(["2", ""])
        it.complete_last_row({"reward": "4"})
    it.close()
    assert path.read_text() == "steps,reward\n1,3\n2,\n", "no row is lost, and none is written twice"
