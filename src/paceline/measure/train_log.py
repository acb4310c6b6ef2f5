"""train.log: what a run says, with the time of day, whatever the terminal shows or does not show.

It also takes what the `paceline` loggers warn of, and marks the run as alive: the process that writes
a log holds a lock on it, which no crash can leave behind.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path
from typing import IO, Any

from paceline.errors import ConfigError

if sys.platform != "win32":
    import fcntl

LOGGER = "paceline"
FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


class TrainLog(logging.Handler):
    """The log of one run; close it. A full disk costs lines, never the run.

    Args:
        path: The file.
        append: Go on after what is there, as a resumed run does.

    Raises:
        ConfigError: Another process is writing it: the run is under way.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        super().__init__()
        self._path = path
        self._file: IO[bytes] | None = open(path, "ab", buffering=0)  # noqa: SIM115  # owned, closed by `close`
        if not _patiently(self._file):
            self._file.close()
            raise ConfigError(
                f"{path}: another process is writing this run. Wait for it, stop it, or choose another --output-dir."
            )
        if not append:
            self._file.truncate(0)
        self.setFormatter(logging.Formatter(FORMAT))
        logging.getLogger(LOGGER).addHandler(self)

    def say(self, line: str, level: int = logging.INFO) -> None:
        """Write a line of the run's own; loggers' levels do not matter to it."""
        self.handle(logging.LogRecord(LOGGER, level, __file__, 0, line, None, None))

    def emit(self, record: logging.LogRecord) -> None:
        """Write it now, unbuffered, so that a killed run leaves it behind."""
        if self._file is None:
            return
        try:
            self._file.write(f"{self.format(record)}\n".encode())
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's own name)
        """Nothing: the run matters more than its log."""

    def close(self) -> None:
        """Let go of the file and the logger. Idempotent."""
        logging.getLogger(LOGGER).removeHandler(self)
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        super().close()

    def __enter__(self) -> TrainLog:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def being_written(path: Path) -> bool:
    """Whether some process holds this log, on this machine and where the file system knows locks."""
    try:
        with open(path, "rb") as file:
            return not _lock(file, shared=True)
    except OSError:
        return False


def _patiently(file: IO[bytes]) -> bool:
    """Lock; whoever only looks (`being_written`) is gone again in a moment."""
    for _ in range(20):
        if _lock(file):
            return True
        time.sleep(0.01)
    return False


def _lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock a file until it is closed; False where somebody else has."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True
