"""Creates the folder of one run, names the files in it, and writes files atomically.

runs/<env>__<algo>__<seed>__<time>/
  config.yaml  command.txt  system_info.json  layout.json      written at the start
  progress.csv  episodes.csv  train.log                        written during the run (`record`)
  events.out.tfevents.*                                        for TensorBoard, which calls the run by this folder
  checkpoints/  best_model/  summary.json
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, closest
from paceline.measure.train_log import being_written

CONFIG = "config.yaml"
COMMAND = "command.txt"
SYSTEM_INFO = "system_info.json"
LAYOUT = "layout.json"
PROGRESS = "progress.csv"
EPISODES = "episodes.csv"
EVENTS = "events.out.tfevents."
"""Beginning of the names of TensorBoard event files."""
LOGS = "logs"
"""Folder of the event files in runs of earlier versions."""
TRAIN_LOG = "train.log"
CHECKPOINTS = "checkpoints"
BEST_MODEL = "best_model"
SUMMARY = "summary.json"
TRACKING_ID = "wandb_id.txt"

OWN_NAMES = (
    CONFIG, COMMAND, SYSTEM_INFO, LAYOUT, PROGRESS, EPISODES, LOGS, TRAIN_LOG, CHECKPOINTS, BEST_MODEL, SUMMARY,
    TRACKING_ID,
)  # fmt: skip
"""What a run writes beside event files. With these, it is what `overwrite` may remove."""

MARKS = (COMMAND, SYSTEM_INFO, LAYOUT, PROGRESS, SUMMARY)
"""Names that identify the folder of a run. A folder with only events or `config.yaml` may belong to other software."""

NAMED_RUNS = 3
"""Most runs that an error text names."""


def folders_beside(path: Path) -> str:
    """The end of an error text about a missing folder: a similar one beside it, or the newest runs there."""
    beside = {each.name: each for each in path.parent.iterdir() if each.is_dir()} if path.parent.is_dir() else {}
    if close := closest(path.name, beside):
        return f"Did you mean {str(beside[close])!r}?"
    runs = sorted((each for each in beside.values() if (each / CONFIG).is_file()), key=lambda run: -run.stat().st_mtime)
    if not runs:
        return "Give the folder of a run."
    return f"The newest runs in {path.parent}: {', '.join(run.name for run in runs[:NAMED_RUNS])}."


class RunFolder:
    """A folder that exists, is writable, and belongs to this run. Use `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def create(
        cls,
        output_dir: str | Path | None,
        *,
        env: str,
        algo: str,
        seed: int,
        resume: bool = False,
        overwrite: bool = False,
        parent: str | Path = "runs",
    ) -> RunFolder:
        """Create the folder, or use the existing one for `resume` and `overwrite`.

        Args:
            output_dir: The folder; None creates one in `parent`, named after env, algo, seed and time.
            env: Env name, for the folder's name.
            algo: Algorithm, for the folder's name.
            seed: Seed, for the folder's name.
            resume: Continue the run in the folder, and keep its files.
            overwrite: Remove the run in the folder. Files that a run does not write are kept.
            parent: Folder for new run folders.

        Raises:
            ConfigError: The folder already has a run, has no run to resume, or is not writable.
        """
        if resume and overwrite:
            raise ConfigError("resume and overwrite: one keeps a run and the other removes it. Give one of them.")
        if output_dir is None:
            if resume:
                raise ConfigError(
                    "resume: no run folder is given. Name the folder of the run to continue by --output-dir."
                )
            path = _new_path(Path(parent), env, algo, seed)
        else:
            path = Path(output_dir)
            found = [name for name in OWN_NAMES if os.path.lexists(path / name)]
            found += sorted(file.name for file in path.glob(EVENTS + "*"))
            if found and not (resume or overwrite):
                raise ConfigError(
                    f"output_dir {str(path)!r}: holds a run already ({found[0]} is there). "
                    "Choose another folder, continue the run with --resume, or remove that run with --overwrite."
                )
            if found and being_written(path / TRAIN_LOG):
                raise ConfigError(
                    f"output_dir {str(path)!r}: another process is writing this run. "
                    "Wait for it, stop it, or choose another folder."
                )
            if resume and not found:
                raise ConfigError(f"resume: no run in {str(path)!r}. Name the folder of a run by --output-dir.")
            if overwrite and found:
                if not set(found) & set(MARKS):
                    raise ConfigError(
                        f"overwrite: {str(path)!r} has {', '.join(found)}, but is not the folder of a run "
                        f"(none of {', '.join(MARKS)} is there). Choose another --output-dir."
                    )
                _remove(path, found)
        require_writable(path, "output_dir")
        return cls(path)

    def discard_if_empty(self) -> None:
        """Remove the folder of a run that did not start, if it is empty."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def events(self, *, resume: bool) -> Path:
        """Return the folder for event files: the run folder, or where the run to resume has them."""
        return self / LOGS if resume and (self / LOGS).is_dir() else self.path

    def write(self, name: str, text: str) -> None:
        """Write a file atomically: a reader sees the old content or the new one, never a part."""
        write_atomic(self.path / name, text)

    def write_json(self, name: str, content: Any) -> None:
        """Write a mapping or a dataclass as JSON; NaN and infinities become null."""
        self.write(name, to_json(content))

    def write_command(self, argv: Sequence[str]) -> None:
        """Write the command line, quoted for a shell."""
        self.write(COMMAND, shlex.join(argv) + "\n")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: write and sync a temporary file, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def to_json(content: Any) -> str:
    """Return standard JSON text: NaN and infinities become null."""
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _new_path(parent: Path, env: str, algo: str, seed: int) -> Path:
    """Create a folder with a new name, also if two runs start in the same second; returns its path."""
    name = re.sub(r"[^\w.\-]+", "-", env).strip("-.") or "env"
    stem = f"{name}__{algo}__{seed}__{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        path = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if parent.is_dir():
                continue
            break  # the parent is not a folder; the caller's mkdir raises the error
        except OSError:
            break
        return path
    return parent / stem


def _remove(path: Path, names: Sequence[str]) -> None:
    for name in names:
        target = path / name
        try:
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink()
        except OSError as error:
            raise ConfigError(
                f"overwrite: cannot remove {str(target)!r} ({error.strerror or error}). Choose another --output-dir."
            ) from error


def require_writable(path: Path, setting: str) -> None:
    """Create the folder if it is missing, and write a test file.

    Args:
        path: The folder.
        setting: Name of the setting, for the error.

    Raises:
        ConfigError: The folder is not writable.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _probe(path)
    except OSError as error:
        raise not_writable(path, setting, error) from error


def write_output(path: Path, content: str | bytes, setting: str) -> None:
    """Write a file that the user has asked for, atomically; create its folder if it is missing.

    Args:
        path: The file.
        content: What to write.
        setting: Name of the setting, for the error.

    Raises:
        ConfigError: The file is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    except OSError as error:
        raise not_writable(path, setting, error) from error


def not_writable(path: Path, setting: str, error: OSError) -> ConfigError:
    """Return the error for a folder or file that is not writable."""
    return ConfigError(
        f"{setting} {str(path)!r}: must be writable ({error.strerror or error}). "
        "Choose another folder, free disk space, or change its permissions."
    )


def _probe(path: Path) -> None:
    """Raise OSError unless a file can be written here now."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".probe-") as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())
