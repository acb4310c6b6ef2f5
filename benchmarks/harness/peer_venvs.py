"""One virtual environment per peer, from exact pins; what cannot be built is said, with the reason."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE / ".venvs"
STAMP, FAILURE = ".installed", ".failed"
NO_DEPS = "# no-deps"
"""A line of pins that are complete, and to be installed whatever the packages say of each other."""
FROM_SOURCE = "# from source: "
"""Begins a line with a pin that is built here, with what is installed by then; `peers/NAME_build/` is on Python's path
meanwhile."""
OURS = "paceline"
"""Not from an index: the source this file lies beside."""


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return VENVS / name / "bin" / "python"


def build(name: str) -> str | None:
    """Build the environment unless it is there already.

    Returns:
        None, or why it cannot be built.
    """
    folder, requirements = VENVS / name, HERE / "peers" / f"requirements-{name}.txt"
    pins = requirements.read_text()
    digest = hashlib.sha256(pins.encode()).hexdigest()
    if _content(folder / STAMP) == digest:
        return None
    print(f"building the environment of {name}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    alone = ["--no-deps"] if NO_DEPS in pins.splitlines() else []
    torch = [line for line in pins.splitlines() if line.startswith("torch==")]
    pip = [str(python_of(name)), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        # By itself and first: where something else may choose the build of torch, gigabytes of CUDA come along.
        *([[*pip, *torch]] if torch else []),
        [*pip, *alone, "-r", str(requirements)],
    ]
    if name == OURS:
        commands.append([*pip, "--no-deps", "--editable", str(HERE.parent)])
    source = [line.removeprefix(FROM_SOURCE) for line in pins.splitlines() if line.startswith(FROM_SOURCE)]
    if source:
        commands.append([*pip, "--no-deps", "--no-build-isolation", *source])
    for command in commands:
        if reason := _run(command, path=HERE / "peers" / f"{name}_build"):
            (folder / FAILURE).write_text(reason)
            return reason
    (folder / STAMP).write_text(digest)  # last, so that an interrupted build is done again
    return None


def _run(command: Sequence[str], path: Path) -> str | None:
    """None, or the error in one line."""
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
