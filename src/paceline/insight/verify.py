"""What a snapshot on disk holds, and whether it is whole. Reads bytes, runs nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import CheckpointError
from paceline.measure.folder import BEST_MODEL, CHECKPOINTS
from paceline.train import checkpoint
from paceline.train.checkpoint import Snapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found at one place."""

    path: Path
    error: str = ""
    """What is wrong; empty if nothing is."""
    contents: tuple[str, ...] = ()
    """A line for each part."""

    @property
    def good(self) -> bool:
        """Whether it can be loaded."""
        return not self.error


def verify(path: Path) -> list[Verdict]:
    """Check a snapshot, or all those of a run or of a folder of checkpoints; the newest first.

    Raises:
        CheckpointError: There is nothing to check.
    """
    found = list(_snapshots(path))
    if not found:
        checkpoint.find(path)  # says what is wrong with the place
        raise CheckpointError(f"{path}: holds no checkpoint.")
    return [_verdict(one) for one in found]


def newest_good(verdicts: list[Verdict]) -> Path | None:
    """The first that is whole, of a list that begins with the newest."""
    return next((one.path for one in verdicts if one.good), None)


def earlier_good(path: Path) -> Path | None:
    """The newest whole checkpoint beside a damaged one."""
    others = [one for one in reversed(checkpoint.steps(path.parent)) if one.name < path.name]
    return next((one for one in others if _verdict(one).good), None)


def _snapshots(path: Path) -> Iterator[Path]:
    # A snapshot with a lost manifest is still one, to be called damaged.
    if (path / checkpoint.MANIFEST).is_file() or (path / checkpoint.STATE).is_file():
        yield path
        return
    for folder in (path / CHECKPOINTS, path):
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
    """What a hash cannot tell: whether the parts fit together, and are numbers."""
    identity = snapshot.meta.get("identity")
    weights = snapshot.arrays.get("learner/weights")
    if not isinstance(identity, dict) or weights is None:
        raise CheckpointError(f"{snapshot.path}: is no snapshot of a training (no weights, or nothing they belong to).")
    promised = identity.get("weights")
    if weights.ndim != 1 or (promised is not None and len(weights) != promised):
        raise CheckpointError(
            f"{snapshot.path}: weights of shape {weights.shape} do not fit the {promised} of its network."
        )
    if weights.dtype != np.float32:
        raise CheckpointError(f"{snapshot.path}: weights are {weights.dtype}, not float32.")
    if not np.isfinite(weights).all():
        raise CheckpointError(f"{snapshot.path}: its weights are not finite. Use an earlier checkpoint.")


def _contents(snapshot: Snapshot) -> Iterator[str]:
    meta, identity = snapshot.meta, snapshot.meta["identity"]
    known = [("algorithm", identity.get("algo")), ("env", identity.get("env")), ("seed", identity.get("seed"))]
    known += [("steps", meta.get("steps")), ("iterations", meta.get("iterations"))]
    yield ", ".join(f"{name} {_number(value)}" for name, value in known if value is not None)
    kind = "a checkpoint to resume from" if "learner/version" in snapshot.arrays else "a model: weights to play with"
    yield f"{kind}, format {checkpoint.FORMAT}, sha256 as in its manifest"
    parts: dict[str, list[Any]] = defaultdict(list)
    for name, array in snapshot.arrays.items():
        parts["/".join(name.split("/")[:2])].append(array)
    for name, arrays in sorted(parts.items()):
        size = sum(array.nbytes for array in arrays)
        shape = f"{arrays[0].dtype} {list(arrays[0].shape)}" if len(arrays) == 1 else f"{len(arrays)} arrays"
        yield f"{name}: {shape}, {size:,} bytes"
    if any(name.startswith("rollouts/pickled") for name in snapshot.arrays):
        yield "pickled envs: loaded only with --trust-env-state, and not by this command"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
