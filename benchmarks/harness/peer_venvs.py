"""Build one virtual environment per peer from exact pins, in benchmarks/.venvs/.

python -m benchmarks.harness.peer_venvs sb3 rllib
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.paths import PEERS, ROOT, VENVS

STAMP, FAILURE = ".installed", ".failed"
NO_DEPS = "# no-deps"
"""A line in a requirements file whose pins are complete: pip ignores the packages' own requirements."""
FROM_SOURCE = "# from source: "
"""Prefix of a line with a pin that is built after all others are installed; `peers/NAME_build/` is on Python's path
during the build."""
OURS = "paceline"
"""The environment that gets the source of this checkout, editable, instead of a package from an index."""


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return VENVS / name / "bin" / "python"


def build(name: str) -> str | None:
    """Build the environment unless it is there already. Blocks for minutes.

    Returns:
        None, or the reason why it cannot be built.
    """
    folder, requirements = VENVS / name, PEERS / f"requirements-{name}.txt"
    pins = requirements.read_text()
    digest = hashlib.sha256(pins.encode()).hexdigest()
    if _content(folder / STAMP) == digest:
        return None
    print(f"building the environment of {name}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    no_deps = ["--no-deps"] if NO_DEPS in pins.splitlines() else []
    torch = [line for line in pins.splitlines() if line.startswith("torch==")]
    pip = [str(python_of(name)), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        # First and by itself: if another package chooses the build of torch, pip adds gigabytes of CUDA.
        *([[*pip, *torch]] if torch else []),
        [*pip, *no_deps, "-r", str(requirements)],
    ]
    if name == OURS:
        commands.append([*pip, "--no-deps", "--editable", str(ROOT)])
    source = [line.removeprefix(FROM_SOURCE) for line in pins.splitlines() if line.startswith(FROM_SOURCE)]
    if source:
        commands.append([*pip, "--no-deps", "--no-build-isolation", *source])
    for command in commands:
        if reason := _run(command, path=PEERS / f"{name}_build"):
            (folder / FAILURE).write_text(reason)
            return reason
    (folder / STAMP).write_text(digest)  # last, so that an interrupted build is repeated
    return None


def require(name: str) -> Path:
    """Build the environment if needed and return its interpreter.

    Raises:
        SystemExit: It cannot be built.
    """
    if reason := build(name):
        raise SystemExit(f"{name}: cannot be installed: {reason}")
    return python_of(name)


def _run(command: Sequence[str], path: Path) -> str | None:
    """Run a command; None, or its error in one line."""
    variables = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or [f"code {done.returncode}"])[0]


def _content(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def main() -> None:
    """Build the named environments and print their interpreters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(path.stem.removeprefix("requirements-") for path in PEERS.glob("requirements-*.txt"))
    parser.add_argument("names", nargs="+", choices=known, metavar="NAME", help=", ".join(known))
    for name in parser.parse_args().names:
        print(require(name))


if __name__ == "__main__":
    main()
