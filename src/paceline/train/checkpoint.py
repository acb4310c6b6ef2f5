"""Snapshots on disk: written atomically, checked when loaded, without code that loading could run.

    step_000000040960/
      state.safetensors     arrays only, no code
      manifest.json         format version, identity of the training, counters, sha256 of the arrays

A snapshot is written to a temporary directory, synced and renamed. A reader therefore never sees an incomplete one,
and a crash while saving leaves the previous one intact.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from paceline.config.plain_yaml import load_file
from paceline.errors import CheckpointError
from paceline.measure.folder import BEST_MODEL, CHECKPOINTS, CONFIG, folders_beside
from paceline.memory.parts import part
from paceline.moved import current_path

FORMAT = 2
STATE, MANIFEST = "state.safetensors", "manifest.json"
State: TypeAlias = dict[str, NDArray[Any]]
"""Named arrays, as a checkpoint stores them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved training or model: its arrays and metadata."""

    path: Path
    arrays: State
    meta: dict[str, Any]

    def part(self, prefix: str) -> State:
        """The arrays under `prefix/`, without it."""
        return part(self.arrays, f"{prefix}/")


def save(path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """Write a snapshot directory atomically, replacing an existing one. Blocks until it is on disk.

    Args:
        path: The directory.
        arrays: The content of `state.safetensors`.
        meta: Plain values for the manifest.

    Raises:
        OSError: The disk is full or read-only. An existing snapshot at `path` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _restore_backup(path)
    building = path.parent / f".{path.name}.{os.getpid()}.tmp"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        contiguous = {key: np.asarray(value, order="C") for key, value in arrays.items()}
        # Not safetensors' save_file: it reports a full disk as SafetensorError instead of OSError.
        (building / STATE).write_bytes(safetensors.numpy.save(contiguous))
        files = {STATE: {"sha256": _sha256(building / STATE), "bytes": (building / STATE).stat().st_size}}
        manifest = {"format": FORMAT, "files": files, "meta": dict(meta)}
        (building / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        for file in (STATE, MANIFEST):
            _sync(building / file)
        _sync(building)
        backup = _backup(path)
        if path.exists():
            # A directory that is not empty cannot be replaced in one step: rename the old one first.
            shutil.rmtree(backup, ignore_errors=True)
            os.replace(path, backup)
        os.replace(building, path)
        shutil.rmtree(backup, ignore_errors=True)
        _sync(path.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        _restore_backup(path)
        raise


def _backup(path: Path) -> Path:
    """The name of the old snapshot while a new one replaces it."""
    return path.parent / f".{path.name}.old"


def _restore_backup(path: Path) -> None:
    """Undo a replacement whose process was killed between the two renames."""
    if not path.exists() and _backup(path).is_dir():
        os.replace(_backup(path), path)


def load(path: Path) -> Snapshot:
    """Read a snapshot and verify its checksum.

    Raises:
        CheckpointError: The snapshot is missing, truncated, altered or of an unknown format; names the file.
    """
    _restore_backup(path)
    manifest_file = path / MANIFEST
    if not manifest_file.is_file():
        raise CheckpointError(f"{path}: not a checkpoint (no {MANIFEST}). Name a run folder or one of its checkpoints.")
    try:
        manifest = json.loads(manifest_file.read_text())
        version, files, meta = manifest["format"], manifest["files"], manifest["meta"]
        if version == FORMAT and not (isinstance(meta, dict) and isinstance(files, dict)):
            raise TypeError("files and meta must be mappings")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{manifest_file}: damaged ({error}). Use an earlier checkpoint.") from error
    except OSError as error:
        raise CheckpointError(f"{manifest_file}: cannot be read ({error.strerror or error}).") from error
    if version != FORMAT:
        raise CheckpointError(f"{manifest_file}: unknown format {version} (this version reads {FORMAT}).")
    listed = files.get(STATE)
    expected: dict[str, Any] = listed if isinstance(listed, dict) else {}
    state = path / STATE
    if not state.is_file():
        raise CheckpointError(f"{state}: missing. Use an earlier checkpoint.")
    if (actual := _sha256(state)) != expected.get("sha256"):
        raise CheckpointError(
            f"{state}: sha256 {actual[:12]}... is not the {str(expected.get('sha256'))[:12]}... of its manifest "
            f"({state.stat().st_size} of {expected.get('bytes')} bytes). It is damaged: use an earlier checkpoint."
        )
    try:
        arrays = safetensors.numpy.load_file(state)
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise CheckpointError(f"{state}: not a safetensors file ({error}).") from error
    return Snapshot(path, arrays, meta)


def step_name(step: int) -> str:
    """The directory name of the checkpoint of a step. Names sort by step."""
    return f"step_{step:012d}"


def prune(folder: Path, keep: int, written: Path) -> None:
    """Delete old checkpoints, and temporary directories of saves that were killed.

    Args:
        folder: The folder of the checkpoints.
        keep: Number of newest checkpoints to keep, at least 1.
        written: The checkpoint that was just written, which is always kept.
    """
    for unfinished in folder.glob(".step_*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for old in steps(folder)[:-keep]:
        if old != written:
            shutil.rmtree(old, ignore_errors=True)


def set_aside_after(folder: Path, step: int) -> list[Path]:
    """Rename checkpoints of steps after `step` to `abandoned_...`: the run continues from `step`. Returns new paths."""
    moved = []
    for path in steps(folder):
        if path.name > step_name(step):
            aside = path.with_name(f"abandoned_{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
            moved.append(aside)
    return moved


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    for backup in folder.glob(".step_*.old"):  # from saves that were killed
        _restore_backup(folder / backup.name.removeprefix(".").removesuffix(".old"))
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def folders(path: Path) -> list[Path]:
    """Where the checkpoints may be if `path` is a run folder or a folder of checkpoints, in the order of search."""
    run = load_file(path / CONFIG) if (path / CONFIG).is_file() else None
    section = run.get("run") if isinstance(run, dict) else None
    named = section.get("checkpoint_dir") if isinstance(section, dict) else None
    return [*([Path(named)] if isinstance(named, str) else []), path / CHECKPOINTS, path]


def find(path: Path, *, resumable: bool = False) -> Path:
    """Find the newest snapshot of a run folder or of a folder of checkpoints; a snapshot's own path is returned as is.

    The checkpoints of a run are where its `checkpoint_dir` says.

    Args:
        path: The folder.
        resumable: Whether to look for checkpoints only: a model (`best_model`) cannot be resumed.

    Raises:
        CheckpointError: There is no snapshot, or the newest is damaged. The text names the newest undamaged one.
    """
    _restore_backup(path)
    if (path / MANIFEST).is_file():
        return path
    searched = folders(path)
    for folder in searched:
        if found := steps(folder):
            return _newest_good(found)
    _restore_backup(path / BEST_MODEL)
    if not resumable and (path / BEST_MODEL / MANIFEST).is_file():
        return path / BEST_MODEL
    if not path.exists():
        raise CheckpointError(f"{path}: no such folder. {folders_beside(path)}")
    elsewhere = f", and neither does its checkpoint_dir {searched[0]}" if len(searched) > 2 else ""
    raise CheckpointError(
        f"{path}: contains no checkpoint{elsewhere}. Was the run stopped before its first --save-freq?"
    )


def run_folder(snapshot: Path) -> Path | None:
    """The run folder that contains a snapshot; None if it is not in one."""
    return next((folder for folder in list(snapshot.parents)[:2] if (folder / CONFIG).is_file()), None)


def _newest_good(found: list[Path]) -> Path:
    try:
        load(found[-1])
    except CheckpointError as error:
        for earlier in reversed(found[:-1]):
            try:
                load(earlier)
            except CheckpointError:
                continue
            raise CheckpointError(
                f"{error}\nThe newest undamaged one is {earlier}: resume with --resume {earlier}"
            ) from error
        raise
    return found[-1]


def require_match(snapshot: Snapshot, identity: Mapping[str, Any]) -> None:
    """Check that a snapshot belongs to the same env, algorithm and network.

    Args:
        snapshot: The snapshot.
        identity: The properties of this training that the snapshot must share.

    Raises:
        CheckpointError: A property differs; names all that do.
    """
    theirs = snapshot.meta.get("identity")
    theirs = theirs if isinstance(theirs, dict) else {}
    differences = [
        f"{key} is {theirs.get(key)!r} there and {value!r} here"
        for key, value in identity.items()
        if _current(theirs.get(key)) != _current(value)
    ]
    if differences:
        raise CheckpointError(f"{snapshot.path}: belongs to another training: {'; '.join(differences)}.")


def _current(value: object) -> object:
    """A value of an identity, with import paths of moved modules replaced by the present ones."""
    return current_path(value) if isinstance(value, str) else value


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
