"""The folder of one run: where it is, what may be written there, files replaced whole.

runs/<env>__<algo>__<seed>__<time>/
  config.yaml  command.txt  system_info.json  layout.json      written at the start
  progress.csv  episodes.csv  logs/  train.log                 written as it goes (`record`)
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

from paceline.errors import ConfigError
from paceline.measure.train_log import being_written

CONFIG = "config.yaml"
COMMAND = "command.txt"
SYSTEM_INFO = "system_info.json"
LAYOUT = "layout.json"
PROGRESS = "progress.csv"
EPISODES = "episodes.csv"
LOGS = "logs"
TRAIN_LOG = "train.log"
CHECKPOINTS = "checkpoints"
BEST_MODEL = "best_model"
SUMMARY = "summary.json"
TRACKING_ID = "wandb_id.txt"

OWN_NAMES = (
    CONFIG, COMMAND, SYSTEM_INFO, LAYOUT, PROGRESS, EPISODES, LOGS, TRAIN_LOG, CHECKPOINTS, BEST_MODEL, SUMMARY,
    TRACKING_ID,
)  # fmt: skip
"""Everything a run writes, and so everything `overwrite` may remove."""

MARKS = (COMMAND, SYSTEM_INFO, LAYOUT, PROGRESS, SUMMARY)
"""Names that only a run has. A folder with nothing but `logs/` or `config.yaml` may be anybody's."""


class RunFolder:
    """A folder that exists, may be written to, and belongs to this run. Made by `create`."""

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
        """Make the folder, or take over the one that is there when that was asked for.

        Args:
            output_dir: The folder; None names a new one under `parent` after env, algo, seed and time.
            env: Env name, for the folder's name.
            algo: Algorithm, likewise.
            seed: Seed, likewise.
            resume: Go on in the run that is there; its files stay.
            overwrite: Remove the run that is there. Files that a run does not write are left alone.
            parent: Where new folders go.

        Raises:
            ConfigError: There is a run already, there is none to resume, or nothing can be written there.
        """
        if resume and overwrite:
            raise ConfigError("resume and overwrite: one keeps a run and the other removes it. Give one of them.")
        if output_dir is None:
            if resume:
                raise ConfigError("resume: no run folder is given. Name the one to go on with by --output-dir.")
            path = _new_path(Path(parent), env, algo, seed)
        else:
            path = Path(output_dir)
            found = [name for name in OWN_NAMES if os.path.lexists(path / name)]
            if found and not (resume or overwrite):
                raise ConfigError(
                    f"output_dir {str(path)!r}: holds a run already ({found[0]} is there). "
                    "Choose another folder, go on with --resume, or remove that run with --overwrite."
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
        """Leave no trace of a run that never began."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def write(self, name: str, text: str) -> None:
        """Put a file there whole: a reader sees the old one or the new one, never half of one."""
        write_atomic(self.path / name, text)

    def write_json(self, name: str, content: Any) -> None:
        """Put a mapping or a dataclass there as JSON; numbers that JSON lacks become null."""
        self.write(name, to_json(content))

    def write_command(self, argv: Sequence[str]) -> None:
        """Put the command there as it can be pasted into a shell."""
        self.write(COMMAND, shlex.join(argv) + "\n")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file by way of a temporary one beside it, synced first."""
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
    """JSON text that any reader takes: NaN and infinities become null."""
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
    """A folder name that nobody has, even when two runs start in the same second."""
    name = re.sub(r"[^\w.\-]+", "-", env).strip("-.") or "env"
    stem = f"{name}__{algo}__{seed}__{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        path = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if parent.is_dir():
                continue
            break  # something that is no folder is in the way; the caller's mkdir says what
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
    """Make the folder where it is missing, and try to write there.

    Args:
        path: The folder.
        setting: What names it.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _probe(path)
    except OSError as error:
        raise not_writable(path, setting, error) from error


def not_writable(path: Path, setting: str, error: OSError) -> ConfigError:
    """The error for a folder that nothing can be written to."""
    return ConfigError(
        f"{setting} {str(path)!r}: must be writable ({error.strerror or error}). "
        "Choose another folder, or make room or rights there."
    )


def _probe(path: Path) -> None:
    """Raise OSError unless a file can be written here now."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".probe-") as file:
        file.write(b"\0" * 4096)
        file.flush()
        os.fsync(file.fileno())
