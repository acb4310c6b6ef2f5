"""The `paceline` command: dispatches to a subcommand and turns errors into exit codes.

Only the chosen subcommand is imported. This module imports neither numpy nor torch, so that `paceline --help` is fast
and the thread-count variables are set before those libraries read them.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from paceline.cli.interrupts import EXIT_CODE, Interrupts, forget_interrupts
from paceline.errors import ConfigError, PacelineError, nearest

COMMANDS = {
    "train": ("paceline.cli.train", "train an agent"),
    "train-many": ("paceline.cli.train_many", "train several seeds in parallel, one agent per seed"),
    "eval": ("paceline.cli.eval", "evaluate a trained agent; optionally record a video"),
    "play": ("paceline.domains.games.play", "play a board game against a trained agent in the terminal"),
    "arena": ("paceline.domains.games.arena", "round-robin matches between agents, with Elo ratings"),
    "cyber": ("paceline.domains.cyber.command", "network defence: train, evaluate, search workflows"),
    "compare": ("paceline.cli.compare", "compare runs: table, plots, HTML page and report"),
    "plot": ("paceline.cli.plot", "plot learning curves"),
    "verify": ("paceline.cli.verify", "verify checksums of checkpoints and list their contents"),
    "ls": ("paceline.cli.ls", "list runs with their state and score"),
    "bench": ("paceline.cli.bench", "measure how fast parallel and sequential training are on your env"),
    "tune": ("paceline.cli.tune", "time grad_shards and learner_threads (speed, not hyperparameters)"),
    "check": ("paceline.cli.check", "self-test of the installation, or of your env with --env"),
}
"""Module and summary of each command. A command is a module with `run(argv) -> exit code`."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    0 success, 1 failure, 2 usage error, 130 SIGINT, 143 SIGTERM, 141 SIGPIPE.

    Args:
        argv: The arguments after `paceline`. Default: those of this process.
    """
    interrupts = Interrupts()
    if argv is not None:
        return _exit_code(list(argv), interrupts)
    # atexit runs in reverse order: registered first, called last. Python would otherwise restore the system's handler.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGINT, interrupts)
    try:
        try:
            code = _exit_code(sys.argv[1:], interrupts)
        finally:
            interrupts.returned = True
    except KeyboardInterrupt:  # a second Ctrl-C while the first one is handled
        code = EXIT_CODE
    forget_interrupts()
    interrupts.exit_code = code
    return code


def _exit_code(words: list[str], interrupts: Interrupts) -> int:
    # numpy and torch size their thread pools from these when they are first imported.
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    # `module:Env` may name a module in the current folder. Appended last, so that it cannot shadow an installed one.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return _dispatch(words)
    except PacelineError as error:
        if os.environ.get("PACELINE_DEBUG", "0") not in ("", "0"):
            raise
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        if not interrupts.raised:
            sys.stderr.write("interrupted\n")
        return EXIT_CODE
    except BrokenPipeError:
        # The reader closed the pipe (`paceline ls | head`). Without this, the flush at exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    command, rest = words[0], words[1:]
    if command in ("-V", "--version"):
        from importlib.metadata import version  # imported here because it takes as long as all other imports together

        sys.stdout.write(f"paceline {version('paceline')}\n")
        return 0
    if command not in COMMANDS:
        raise ConfigError(f"{command}: no such command. {nearest(command, COMMANDS)}")
    return int(importlib.import_module(COMMANDS[command][0]).run(rest))


def usage() -> str:
    """The text of `paceline --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: paceline COMMAND [FLAGS]",
            "",
            "Reinforcement learning on every core.",
            "",
            "commands:",
            *lines,
            "",
            "`paceline COMMAND --help` describes the flags of a command; --version prints the version.",
            "Exit codes: 0 success, 1 failure, 2 wrong flag or setting, 130 Ctrl-C, 143 SIGTERM.",
            "Set PACELINE_DEBUG=1 in the environment to see tracebacks of errors.",
            "",
        ]
    )
