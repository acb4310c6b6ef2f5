from __future__ import annotations

import argparse

import pytest

from paceline.config.arguments import hyphenated, parse_arguments
from paceline.errors import ConfigError


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline tidy", allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("--output-dir", "-o")
    return parser


@pytest.mark.parametrize("flag", ["--output-dir", "--output_dir", "-o"])
def test_every_spelling_of_a_flag_is_parsed(parser: argparse.ArgumentParser, flag: str) -> None:
    given = parse_arguments(parser, ["runs", flag, "x"])
    assert (given.folder, given.output_dir) == ("runs", "x")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["runs", "--outptu-dir=x"], "tidy --outptu-dir=x: not expected. Did you mean '--output-dir'?"),
        (["runs", "more"], "tidy more: not expected. Known: --help, --output-dir."),
    ],
)
def test_an_unexpected_word_is_an_error_that_names_the_flags(
    parser: argparse.ArgumentParser, argv: list[str], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(parser, argv)
    assert str(caught.value) == text


def test_only_the_names_of_known_flags_are_respelled(parser: argparse.ArgumentParser) -> None:
    words = ["a_b", "--output_dir=e_f", "-g", "--env_kwargs", "h_i=1"]
    assert hyphenated(words, parser) == ["a_b", "--output-dir=e_f", "-g", "--env_kwargs", "h_i=1"]
