"""Append-only files of a run: CSV tables and the TensorBoard event file.

Rows are collected in memory and written together. A failing disk does not stop the training: a partly written row is
cut off, the rows stay in memory, the next flush tries again, and the log has a warning.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from paceline.errors import CheckpointError
from paceline.measure.folder import EVENTS

log = logging.getLogger(__name__)

KEEP_BYTES = 64 << 20
"""Most bytes kept in memory while the disk cannot be written; beyond that, they are dropped."""


class AppendFile:
    """Bytes at the end of a file, written together when `flush` is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()
        self._waiting: list[bytes] = []
        self._warned = False

    def _open(self) -> None:
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115  # owned, closed by `close`
        self._written = self._file.seek(0, os.SEEK_END)

    def add(self, data: bytes) -> None:
        """Keep `data` for the next flush."""
        self._waiting.append(data)

    def flush(self) -> None:
        """Write everything to the operating system; on failure keep it and warn once."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        try:
            _write_all(self._file.fileno(), data)
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._written)  # so that no row is cut off or written twice
            self._waiting = [data] if len(data) <= KEEP_BYTES else []
            if not self._warned:
                log.warning(
                    "%s: cannot be written (%s). Training continues; free disk space.", self.path, error.strerror
                )
                self._warned = True
            return
        self._waiting.clear()
        self._written += len(data)
        self._warned = False

    @property
    def unwritten(self) -> bool:
        """Whether the last flush failed, so that the end of the file is only in memory or lost."""
        return self._warned

    def close(self) -> None:
        """Flush and close; may be called twice."""
        if not self._file.closed:
            self.flush()
            self._file.close()


class Table(AppendFile):
    """A CSV file.

    Args:
        path: The file; overwritten unless `resume_steps` is given.
        header: Column names.
        step_column: Name of the column that counts the steps of the run.
        resume_steps: Keep the rows up to this step, and append after them.
        renamed: Present names of columns that earlier versions called otherwise.
    """

    def __init__(
        self,
        path: Path,
        header: tuple[str, ...],
        *,
        step_column: str,
        resume_steps: int | None,
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.header = header
        """Column names; a resumed table also keeps the columns that `add_columns` has added."""
        self._step_column = step_column
        self._last: list[str] | None = None
        if resume_steps is None or not path.exists():
            path.write_text(",".join(header) + "\n", encoding="utf-8")
        else:
            self.header, self._last = _rewrite(path, header, step_column, resume_steps, renamed)
        super().__init__(path)

    def add_columns(self, names: Sequence[str]) -> bool:
        """Add columns at the end, empty in all rows so far. Rewrites the file; False if the disk cannot be written."""
        self.flush()
        if self._waiting:
            return False
        try:
            self.header, self._last = _rewrite(self.path, (*self.header, *names), self._step_column)
        except OSError:
            return False
        self._file.close()
        self._open()
        return True

    def add_row(self, cells: list[str]) -> None:
        """Keep one row for the next flush."""
        self._last = cells
        self.add(_line(cells))

    def complete_last_row(self, values: Mapping[str, str], *, replace: bool = True) -> None:
        """Write further cells of the last row, by column; with `replace=False` only cells that are empty.

        Does nothing without rows or on a full disk.
        """
        self.flush()
        if self._last is None or self._waiting:
            return
        self._written -= len(_line(self._last))
        os.ftruncate(self._file.fileno(), self._written)
        cells = zip(self.header, self._last, strict=True)
        self.add_row([cell if cell and not replace else values.get(name, cell) for name, cell in cells])
        self.flush()


class EventFile(AppendFile):
    """A TensorBoard event file of scalars, one event for each call.

    Args:
        folder: The log directory. A resumed run starts another file there.
        resume_steps: Tells TensorBoard to drop events that an earlier session wrote after this step.
    """

    def __init__(self, folder: Path, *, resume_steps: int | None) -> None:
        # Imported here because it takes a third of a second, which reading a run's tables does not need.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names, so a later session needs a later name.
        stamp = int(datetime.now(UTC).timestamp())
        names = (file.name.split(".") for file in folder.glob(EVENTS + "*"))
        taken = [int(name[3]) for name in names if name[3].isdigit()]
        stamp = max([stamp, *(number + 1 for number in taken)])
        super().__init__(folder / f"{EVENTS}{stamp:010d}.{socket.gethostname()}.{os.getpid()}")
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._records: Any = RecordWriter(SimpleNamespace(write=self.add))  # needs this one method of a file
        # Wall-clock time for TensorBoard's relative axis, based on a monotonic clock so that it cannot jump.
        self._epoch_s = datetime.now(UTC).timestamp() - time.perf_counter()
        self._put(file_version="brain.Event:2")
        if resume_steps is not None:
            self._put(step=resume_steps + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Keep one event with all of these tags for the next flush."""
        make = self._summary.Value
        values = [make(tag=tag, simple_value=float(number)) for tag, number in scalars.items()]
        self._put(step=step, summary=self._summary(value=values))

    def add_hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Keep the run's settings, for TensorBoard's table of runs (HPARAMS)."""
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2  # see `__init__`

        info = plugin_data_pb2.SessionStartInfo()
        for name, value in values.items():
            if isinstance(value, bool):
                info.hparams[name].bool_value = value
            elif isinstance(value, str):
                info.hparams[name].string_value = value
            else:
                info.hparams[name].number_value = value
        content = plugin_data_pb2.HParamsPluginData(session_start_info=info, version=metadata.PLUGIN_DATA_VERSION)
        described = metadata.create_summary_metadata(content)
        tag = metadata.SESSION_START_INFO_TAG
        self._put(summary=self._summary(value=[self._summary.Value(tag=tag, metadata=described)]))

    def _put(self, **content: Any) -> None:
        event = self._event(wall_time=self._epoch_s + time.perf_counter(), **content)
        self._records.write(event.SerializeToString())


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _line(cells: Sequence[str]) -> bytes:
    return (",".join(cells) + "\n").encode()


def _rewrite(
    path: Path,
    header: tuple[str, ...],
    step_column: str,
    last_step: float = math.inf,
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[str, ...], list[str] | None]:
    """Drop rows after a step, and a last line that a killed process left unfinished.

    Returns the new header and the last row that is kept.

    Columns that the file lacks, because an earlier version wrote it or because they are new, stay empty in its rows.
    Columns after those of `header`, which `add_columns` has added, are kept.

    Raises:
        CheckpointError: The file has other columns, or a line is not a row.
    """
    first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True) or [""]
    columns = [renamed.get(name, name) for name in first.rstrip("\n").split(",")]
    known = [name in header for name in columns]
    if step_column not in columns or known != sorted(known, reverse=True):
        raise CheckpointError(
            f"{path}: its columns are not those of this version. Move the file away to resume without its rows."
        )
    header = (*header, *columns[sum(known) :])
    kept: list[Sequence[str]] = [header]
    last: list[str] | None = None
    for number, line in enumerate(lines, start=2):
        if not line.endswith("\n"):
            break
        try:
            row = dict(zip(columns, line.rstrip("\n").split(","), strict=True))
            steps = int(row[step_column])
        except ValueError:
            raise CheckpointError(
                f"{path}, line {number}: not a row of this table. Move the file away to resume without its rows."
            ) from None
        if steps <= last_step:
            last = [row.get(name, "") for name in header]
            kept.append(last)
    temporary = path.with_name(f".{path.name}.cut")
    temporary.write_bytes(b"".join(map(_line, kept)))
    os.replace(temporary, path)
    return header, last
