"""`paceline train ALGO`: parse the command line and train."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paceline.config.algorithms import ALGORITHMS
from paceline.config.flags import NoOptions, parse
from paceline.errors import ConfigError, nearest
from paceline.train.start_up import begin, exit_code


def run(argv: Sequence[str]) -> int:
    """Parse the flags of `train ALGO`, train, and return the exit code."""
    names = ", ".join(ALGORITHMS)
    if argv and argv[0] in ("-h", "--help", "--help-all"):
        about = {name: str(entry.settings.__doc__).partition(": ")[2] for name, entry in ALGORITHMS.items()}
        lines = "".join(f"  {name:<8}{text}\n" for name, text in about.items())
        sys.stdout.write(
            f"usage: paceline train ALGO [FLAGS]\n\nalgorithms:\n{lines}\n"
            "`paceline train ALGO --help` describes the common flags of an algorithm and names the others.\n"
        )
        return 0
    if not argv or argv[0].startswith("-"):
        raise ConfigError(
            f"train: an algorithm comes first ({names}). Use paceline train {next(iter(ALGORITHMS))} --env CartPole-v1."
        )
    algo, rest = argv[0], argv[1:]
    if algo not in ALGORITHMS:
        raise ConfigError(f"{algo}: no such algorithm. {nearest(algo, ALGORITHMS)}")
    config, _ = parse(
        rest,
        prog=f"paceline train {algo}",
        description=f"{ALGORITHMS[algo].settings.__doc__} Flags are also keys of the config file and keywords in "
        "Python, with underscores.",
        algo=algo,
        extra=NoOptions,
    )
    begin(config)
    # Imported only now, because they load torch, which takes longer than parsing the command line.
    from paceline.runtime.worker import set_title
    from paceline.train.run import train

    set_title(f"paceline: train {algo} {config.env_name}")
    summary = train(config, argv=["paceline", "train", *argv])
    return exit_code(summary.stop_reason)
