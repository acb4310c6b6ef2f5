"""Loads YAML as plain values only: a tag in a file cannot build an object or run code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from paceline.errors import ConfigError


class NotPlain(Exception):
    """The text is not YAML, or has a tag that is not a plain value. The message fits on one line."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `3e-4` as a number (YAML 1.1 requires `3.0e-4`) and refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build the mapping, after looking for repeated keys."""
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d[\d_]*(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def safe_load(text: str) -> Any:
    """Parse YAML, and so JSON.

    Raises:
        NotPlain: The text is not YAML, or has a tag that is not a plain value.
    """
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as exc:
        # ValueError: an impossible date. TypeError: a key that is not hashable.
        raise NotPlain(" ".join(str(exc).split()) or type(exc).__name__) from exc


def load_file(path: Path) -> Any:
    """Parse a YAML file.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or has a tag that is not a plain value.
    """
    try:
        return safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        raise ConfigError(f"config {str(path)!r}: cannot be read ({reason}). Check the path.") from exc
    except NotPlain as exc:
        raise ConfigError(
            f"config {str(path)!r}: must be plain YAML ({exc}). Write plain values; nothing is evaluated."
        ) from exc
