"""Writes train.log: the messages of a run and the warnings of the `paceline` loggers, with time stamps.

The log also shows whether a run is active: the process that writes it holds a file lock, which the system releases when
the process ends or crashes.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path
from typing import IO

from paceline.errors import ConfigError

if sys.platform != "win32":
    import fcntl

LOGGER = "paceline"
FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


class TrainLog(logging.Handler):
    """The log of one run; call `close`. A full disk loses lines, but does not stop the run.

    Args:
        path: The file.
        append: Keep the existing lines, for a resumed run.

    Raises:
        ConfigError: Another process is writing it: the run is still active.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        super().__init__()
        self._path = path
        self._file: IO[bytes] | None = open(path, "ab", buffering=0)  # noqa: SIM115  # owned, closed by `close`
        if not _lock_with_retries(self._file):
            self._file.close()
            raise ConfigError(
                f"{path}: another process is writing this run. Wait for it, stop it, or choose another --output-dir."
            )
        if not append:
            self._file.truncate(0)
        self.setFormatter(logging.Formatter(FORMAT))
        logging.getLogger(LOGGER).addHandler(self)

    def say(self, line: str, level: int = logging.INFO) -> None:
        """Write a message of the run, regardless of the loggers' levels."""
        self.handle(logging.LogRecord(LOGGER, level, __file__, 0, line, None, None))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record at once, so that it survives if the process is killed."""
        if self._file is None:
            return
        try:
            self._file.write(f"{self.format(record)}\n".encode())
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's own name)
        """Do nothing: an error of the log must not stop the run."""

    def close(self) -> None:
        """Close the file and detach from the logger. Idempotent."""
        logging.getLogger(LOGGER).removeHandler(self)
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        super().close()


def being_written(path: Path) -> bool:
    """Return whether a process of this machine is writing this log; False on file systems without locks."""
    try:
        with open(path, "rb") as file:
            return not _lock(file, shared=True)
    except OSError:
        return False


def _lock_with_retries(file: IO[bytes]) -> bool:
    """Lock the file; retries, since `being_written` in another process holds a lock for a moment."""
    for _ in range(20):
        if _lock(file):
            return True
        time.sleep(0.01)
    return False


def _lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock a file until it is closed; returns False if another process holds the lock."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True
