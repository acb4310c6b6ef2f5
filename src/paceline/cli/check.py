"""`paceline check`: test the installation on this machine, and an env of your choice rule by rule."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Sequence
from time import perf_counter

from rich.console import Console

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.errors import ConfigError, PacelineError


def run(argv: Sequence[str]) -> int:
    """Run the tests in order and stop at the first failure, with exit code 1 (2 for a usage error)."""
    parser = argparse.ArgumentParser(
        prog="paceline check",
        description="Self-test: an env, shared memory, start methods, and identical weights with 0 and 2 workers. The "
        "env is checked rule by rule: observations (bounds, dtype, shape, NaN), rewards, end of episodes, seeds, "
        "images, Gymnasium's own check_env. Broken rules fail the test, hints do not.",
        allow_abbrev=False,
    )
    parser.add_argument("--env", default="CartPole-v1", help="env to test with (default: CartPole-v1)")
    parser.add_argument("--env-kwargs", nargs="*", default=[], metavar="KEY=VALUE", help="keyword arguments of the env")
    given = parse_arguments(parser, argv)
    kwargs = coerce(given.env_kwargs, dict[str, object], "env_kwargs")
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.insight.selftest import parts

    console = Console(highlight=False)
    began = perf_counter()
    for name, test in parts(given.env, kwargs):
        start = perf_counter()
        try:
            detail = test()
        except Exception as error:
            console.print(f"[red]failed[/]  {name}", highlight=False)
            text = str(error) if isinstance(error, PacelineError) else "".join(traceback.format_exception(error))
            console.print(text, markup=False, soft_wrap=True)
            console.print(f"FAILED: {name}", style="bold red")
            return error.exit_code if isinstance(error, ConfigError) else 1
        detail, *hints = detail.splitlines()
        console.print(f"[green]ok[/]      {name}: {detail} ({perf_counter() - start:.1f} s)")
        for hint in hints:
            console.print(hint, style="yellow", markup=False, soft_wrap=True)
    console.print(f"ALL TESTS PASSED in {perf_counter() - began:.1f} s", style="bold green")
    return 0
