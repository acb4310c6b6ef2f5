"""Verifies checkpoints and saved models on disk and lists their contents. Runs no code from the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import CheckpointError
from paceline.measure.folder import BEST_MODEL
from paceline.train import checkpoint
from paceline.train.checkpoint import Snapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of checking one snapshot."""

    path: Path
    error: str = ""
    """What is damaged; empty if the snapshot is good."""
    contents: tuple[str, ...] = ()
    """One line per part; empty if the snapshot is damaged."""

    @property
    def good(self) -> bool:
        """Whether the snapshot can be loaded."""
        return not self.error


def verify(path: Path) -> list[Verdict]:
    """Check one snapshot, or all snapshots of a run or a checkpoint folder, the newest first.

    Raises:
        CheckpointError: The path holds no snapshot.
    """
    found = list(_snapshots(path))
    if not found:
        checkpoint.find(path)  # raises with a more specific text
        raise CheckpointError(f"{path}: holds no checkpoint.")
    return [_verdict(one) for one in found]


def earlier_good(path: Path) -> Path | None:
    """The newest good checkpoint in the same folder that is older than `path`."""
    others = [one for one in reversed(checkpoint.steps(path.parent)) if one.name < path.name]
    return next((one for one in others if _verdict(one).good), None)


def _snapshots(path: Path) -> Iterator[Path]:
    # A folder with only one of the two files is listed too, so that it is reported as damaged.
    if (path / checkpoint.MANIFEST).is_file() or (path / checkpoint.STATE).is_file():
        yield path
        return
    for folder in checkpoint.folders(path):
        if steps := checkpoint.steps(folder):
            yield from reversed(steps)
            break
    if (path / BEST_MODEL).is_dir():
        yield path / BEST_MODEL


def _verdict(path: Path) -> Verdict:
    try:
        snapshot = checkpoint.load(path)
        _check(snapshot)
    except CheckpointError as error:
        return Verdict(path, str(error))
    except OSError as error:
        return Verdict(path, f"{path}: cannot be read ({error.strerror or error}).")
    return Verdict(path, contents=tuple(_contents(snapshot)))


def _check(snapshot: Snapshot) -> None:
    """Check what a hash cannot show: that weights are there, have the right shape and type, and are finite."""
    identity = snapshot.meta.get("identity")
    weights = snapshot.arrays.get("learner/weights")
    if not isinstance(identity, dict) or weights is None:
        raise CheckpointError(f"{snapshot.path}: not a snapshot of a training (no weights, or no `identity`).")
    promised = identity.get("weights")
    if weights.ndim != 1 or (promised is not None and len(weights) != promised):
        raise CheckpointError(
            f"{snapshot.path}: weights have shape {weights.shape}, but the network has {promised} parameters."
        )
    if weights.dtype != np.float32:
        raise CheckpointError(f"{snapshot.path}: weights are {weights.dtype}, not float32.")
    if not np.isfinite(weights).all():
        raise CheckpointError(f"{snapshot.path}: weights are NaN or infinite. Use an earlier checkpoint.")


def _contents(snapshot: Snapshot) -> Iterator[str]:
    meta, identity = snapshot.meta, snapshot.meta["identity"]
    known = [("algorithm", identity.get("algo")), ("env", identity.get("env")), ("seed", identity.get("seed"))]
    known += [("steps", meta.get("steps")), ("iterations", meta.get("iterations"))]
    yield ", ".join(f"{name} {_number(value)}" for name, value in known if value is not None)
    kind = "a checkpoint to resume from" if "learner/version" in snapshot.arrays else "a model, without training state"
    yield f"{kind}, format {checkpoint.FORMAT}, sha256 as in its manifest"
    parts: dict[str, list[Any]] = defaultdict(list)
    for name, array in snapshot.arrays.items():
        parts["/".join(name.split("/")[:2])].append(array)
    for name, arrays in sorted(parts.items()):
        size = sum(array.nbytes for array in arrays)
        shape = f"{arrays[0].dtype} {list(arrays[0].shape)}" if len(arrays) == 1 else f"{len(arrays)} arrays"
        yield f"{name}: {shape}, {size:,} bytes"
    if any(name.startswith("rollouts/pickled") for name in snapshot.arrays):
        yield "pickled envs: only --trust-env-state loads them, this command does not"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
