"""Trains the stored cases and renews what is stored; uses public names of the package only.

    make golden                 train all cases and store their hashes for this CPU model and these versions
    make golden-checkpoints     write new checkpoints: old ones are what proves that old runs load

Hashes of other CPU models stay in the file. Renewing is a decision: see the text that a mismatch prints.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

# As the command line and conftest.py do, before numpy and torch are loaded.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from tests.golden.stored_cases import CASES, CHECKPOINTS, COMMON, EXTERNAL, INLINE_ONLY, Settings  # noqa: E402

import paceline  # noqa: E402
from paceline.cli import main as main_of_paceline  # noqa: E402

STORED = Path(__file__).parent / "stored"
HASHES = STORED / "hashes.json"
FOLDERS = STORED / "checkpoints"
RENEW = "make golden"
RENEW_CHECKPOINTS = "make golden-checkpoints"
KEPT = ("config.yaml", "summary.json", "progress.csv", "episodes.csv", "layout.json", "checkpoints")
"""What of a run folder is stored: all that a resume reads, and nothing that names the machine or its paths."""


class StopAfter:
    """Stops a run after some updates."""

    def __init__(self, updates: int) -> None:
        self._left = updates

    def on_update(self, _moment: Any) -> bool:
        self._left -= 1
        return self._left > 0


def machine() -> str:
    """What the last bit of a weight depends on: the CPU model, its vector instructions, torch and numpy.

    The name alone does not do: virtual machines give several generations the same one. Family and model tell them
    apart, and torch's capability tells which instructions the hypervisor lets through.
    """
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = found.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key.split()[-1]} {found[key]}" for key in ("cpu family", "model", "CPU part") if key in found]
    versions = [f"torch {torch.__version__}", f"numpy {np.__version__}"]
    return ", ".join([name, *numbers, torch.backends.cpu.get_cpu_capability(), *versions])


def agent(settings: Settings, **more: Any) -> Any:
    """The agent of a case; settings that are None count as not given."""
    merged = {key: value for key, value in {**COMMON, **settings, **more}.items() if value is not None}
    kind = {"ppo": paceline.PPO, "dqn": paceline.DQN, "impala": paceline.IMPALA, "appo": paceline.APPO}
    return {**kind, "a3c": paceline.A3C}[merged.pop("algo")](merged.pop("env"), **merged)


def trained(settings: Settings, *callbacks: object, **more: Any) -> Any:
    """Train to the end of the config's budget; the summary."""
    with agent(settings, **more) as it:
        return it.learn(callbacks=callbacks).summary


def workers_of(name: str) -> tuple[int, ...]:
    """The worker counts for which the hash of a case holds."""
    return (0,) if CASES[name]["algo"] in INLINE_ONLY else (0, 2)


def stored_hashes() -> dict[str, dict[str, dict[str, str]]]:
    """By machine, then by `cases` and `resumed`, then by name."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(HASHES.read_text()) if HASHES.is_file() else {}
    return found


def mismatch(name: str, expected: str, found: str, *, what: str = "weights") -> str:
    """What a failing test says."""
    return (
        f"{name}: the {what} are not those stored (stored {expected}, found {found}; {machine()}). Either the change "
        "has a bug: training must give the same bits as before. Or new bits are intended: then renew the hashes "
        f"with `{RENEW}` and write an ADR in docs/adr that says why, in a commit of its own."
    )


def resume_once(name: str, folder: Path, workers: int = 0) -> dict[str, Any]:
    """Resume a stored run, copied to `folder`, for one more iteration by the command line; its `summary.json`."""
    shutil.copytree(FOLDERS / name, folder)
    summary = folder / "summary.json"
    steps = json.loads(summary.read_text())["steps"]
    argv = ["train", CHECKPOINTS[name]["algo"], "--resume", str(folder), "--total-timesteps", str(steps + 1)]
    summary.unlink()
    if code := main_of_paceline([*argv, "--num-workers", str(workers), "--quiet"]):
        raise RuntimeError(f"{name}: paceline {' '.join(argv)} ended with code {code}")
    found: dict[str, Any] = json.loads(summary.read_text())
    return found


def _trajectory() -> list[tuple[Any, ...]]:
    """A few transitions of CartPole, made up."""
    rows = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32) / 20
    return [(rows[t], t % 2, 1.0, rows[t + 1], t == 4) for t in range(5)]


def renew_hashes() -> None:
    """Train every case in both ways and resume every stored checkpoint; store what came out."""
    found: dict[str, dict[str, str]] = {"cases": {}, "resumed": {}}
    for name, settings in CASES.items():
        hashes = {workers: trained(settings, num_workers=workers).weights_sha256 for workers in workers_of(name)}
        if len(set(hashes.values())) != 1:
            sys.exit(f"{name}: not deterministic, nothing stored ({hashes}). Mend that, or leave the case out.")
        found["cases"][name] = hashes[0]
        sys.stderr.write(f"{name}: {hashes[0]}\n")
    for name in CHECKPOINTS:
        with tempfile.TemporaryDirectory() as temporary:
            found["resumed"][name] = resume_once(name, Path(temporary) / "run")["weights_sha256"]
    everything = {**stored_hashes(), machine(): found}
    HASHES.write_text(json.dumps(dict(sorted(everything.items())), indent=1) + "\n")


def renew_checkpoints() -> None:
    """Write all runs of `CHECKPOINTS` with the code of today."""
    shutil.rmtree(FOLDERS, ignore_errors=True)
    for name, settings in CHECKPOINTS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / name
            with agent(settings, num_workers=0, output_dir=folder) as it:
                if name in EXTERNAL:
                    it.add_trajectory(_trajectory())
                it.learn()
            for part in KEPT:
                source, target = folder / part, FOLDERS / name / part
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target)
                else:
                    # The folder it was written in is of no interest, and would be another each time.
                    target.write_text(source.read_text().replace(str(folder), f"runs/{name}"))
            # These stand in the manifest, too; its own hash covers the state only.
            for manifest in (FOLDERS / name).glob("checkpoints/*/manifest.json"):
                manifest.write_text(manifest.read_text().replace(str(folder), f"runs/{name}"))
    size = sum(path.stat().st_size for path in FOLDERS.rglob("*") if path.is_file())
    sys.stderr.write(f"{len(CHECKPOINTS)} runs, {size / 1e6:.2f} MB\n")


def main() -> int:
    """Renew one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", action="store_true", help="write new checkpoints, then the hashes")
    parser.add_argument("--replace-old-runs", action="store_true", help="confirm that: the old ones are lost")
    flags = parser.parse_args()
    if flags.checkpoints and not flags.replace_old_runs:
        sys.stderr.write(
            "checkpoints: stored runs of earlier versions prove that old runs load; new ones prove nothing. Add a run "
            "instead where you can. If the format has changed for good, confirm with --replace-old-runs.\n"
        )
        return 2
    if flags.checkpoints:
        renew_checkpoints()
    renew_hashes()
    return 0


if __name__ == "__main__":
    sys.exit(main())
