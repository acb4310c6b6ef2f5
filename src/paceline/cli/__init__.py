"""The `paceline` command: finds the subcommand, imports only that, and turns errors into exit codes.

Nothing heavy is imported here, so that `paceline --help` answers at once and the number of
threads is settled before numpy or torch are loaded.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from paceline.errors import ConfigError, PacelineError, nearest

COMMANDS = {
    "train": ("paceline.cli.train", "train an agent"),
    "train-many": ("paceline.cli.train_many", "train one agent for each of several seeds, side by side"),
    "eval": ("paceline.cli.eval", "play episodes with a trained agent, perhaps on video"),
    "play": ("paceline.cli.play", "play a game against a trained agent"),
    "arena": ("paceline.cli.arena", "have agents play each other, and rate them"),
    "cyber": ("paceline.cli.cyber", "train, search and score defenders of a network"),
    "compare": ("paceline.cli.compare", "put runs side by side"),
    "plot": ("paceline.cli.plot", "draw learning curves"),
    "verify": ("paceline.cli.verify", "check every byte of a checkpoint or run, and say what is in it"),
    "ls": ("paceline.cli.ls", "list the runs under a folder"),
    "bench": ("paceline.cli.bench", "measure sequential against parallel on this machine"),
    "tune": ("paceline.cli.tune", "say whether other settings of the learner would be faster on this machine"),
    "check": ("paceline.cli.check", "test this installation"),
}
"""Where each command lives, and what it is for. A command is a module with `run(argv) -> exit code`."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 well, 1 failed, 2 badly asked, 130 interrupted, 141 cut off.

    Args:
        argv: The words after `paceline`; those of this process where not given.
    """
    if argv is not None:
        return _exit_code(list(argv))
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the first to be registered is the last to be called
    try:
        code = _exit_code(sys.argv[1:])
    except KeyboardInterrupt:  # another one, while the first was being handled
        code = 130
    # All is done, and what is left of this process is to leave: a Ctrl-C has it do so at once.
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    return code


def _exit_code(words: list[str]) -> int:
    # numpy and torch size their thread pools from these when they are first imported.
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    # `module:Env` may name a module of the folder the user stands in; last, so that it shadows nothing.
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
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # `paceline ls | head`: the reader has seen enough. Flushing at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    command, rest = words[0], words[1:]
    if command in ("-V", "--version"):
        from importlib.metadata import version  # takes as long to load as all the rest

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
            "usage: paceline COMMAND [OPTIONS]",
            "",
            "Reinforcement learning on every core.",
            "",
            "commands:",
            *lines,
            "",
            "`paceline COMMAND --help` lists the options of a command; --version says which Paceline this is.",
            "An error shows its traceback with PACELINE_DEBUG=1 in the environment.",
            "",
        ]
    )
