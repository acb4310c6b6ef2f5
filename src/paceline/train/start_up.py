"""Start-up of a training command before it imports torch: a first line, and the fork server, which imports torch too.

Importing torch takes most of the start-up time. With this, the fork server and the command import it at the same time.
This module does not import torch.
"""

from __future__ import annotations

import sys

from paceline.config.train_config import TrainConfig
from paceline.runtime.forkserver import default_start_method, start_fork_server

PRELOAD = ("paceline.train.algorithms.ppo",)
"""Modules that every worker needs; the fork server imports them once for all workers."""

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}
"""Exit code of a run that a signal ended early, after its checkpoint; by stop reason."""


def exit_code(stop_reason: str | None) -> int:
    """The exit code of a training command whose run ended for this reason."""
    return EXIT_CODES.get(stop_reason or "", 0)


def begin(config: TrainConfig) -> None:
    """Say what starts, and start the fork server now if it will start the workers of this config. Does not wait for it.

    The line comes first: importing torch and starting workers and envs takes seconds.
    """
    if not config.run.quiet:
        resuming = "resuming" if config.run.resume else "starting"
        sys.stderr.write(
            f"{resuming} {config.run.algo} on {config.env_name}: importing PyTorch, then making the envs\n"
        )
        sys.stderr.flush()
    parallel = config.parallel
    on_this_machine = config.num_workers != 0 and parallel.runtime == "local"
    if on_this_machine and (parallel.start_method or default_start_method()) == "forkserver":
        start_fork_server(PRELOAD)
