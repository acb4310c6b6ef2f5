"""Parses the command lines of commands that have no config, such as `paceline ls`, with argparse."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from paceline.errors import ConfigError, nearest


def parse_arguments(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse a command line.

    Args:
        parser: Its `prog` is the command, for the error text.
        argv: The words after the command.

    Raises:
        ConfigError: An unknown flag or a word too many; suggests the nearest flag.
        SystemExit: With 0 after --help, with 2 for a flag that lacks its value.
    """
    given, unknown = parser.parse_known_args(hyphenated(argv, parser))
    if unknown:
        flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
        command = parser.prog.removeprefix("paceline ")
        raise ConfigError(f"{command} {unknown[0]}: not expected. {nearest(unknown[0].partition('=')[0], flags)}")
    return given


def hyphenated(argv: Sequence[str], parser: ArgumentParser) -> list[str]:
    """The words with `--output_dir` as `--output-dir`, if the parser has that flag: flags are accepted either way."""
    known = parser._option_string_actions
    words = []
    for word in argv:
        flag, equals, value = word.partition("=")
        dashed = flag.replace("_", "-")
        words.append((dashed if dashed in known else flag) + equals + value)
    return words
