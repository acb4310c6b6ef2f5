"""The settings as the Python classes take them: name, type, default and help text. Free of torch.

dataclasses of the sections --+--> signature and docstring of `PPO`, ... (train/documented.py), at run time
                              +--> keywords.py, shared_keywords.py (`make keywords`), for type checkers and editors
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from paceline.config.help_texts import field_help
from paceline.config.train_config import SECTIONS, section_types

ORDER = ("training", *(section for section in SECTIONS if section != "training"))
"""Sections in the order of the documentation: what differs between algorithms comes first."""

POSITIONAL = ("env", "algo")
"""Settings that are not keywords: the env is the first argument, the class is the algorithm."""

DEFAULTS: dict[str, object] = {"quiet": True}
"""Defaults in Python that differ from those of the command line."""

TEXTS = {
    "output_dir": "Run folder. Default: no files are written.",
    "quiet": "No progress display. `verbose=1` and `progress_bar=True` show it.",
}
"""Help texts in Python that differ from those of the command line."""

TYPES = {"num_workers": 'int | Literal["auto"] | None'}
"""Types in Python that differ from those of the field: `num_workers=None` means auto."""

ACCEPTED = ((r"\bPath\b", "str | Path"), (r"\btuple\[(.*), \.\.\.\]", r"Sequence[\1]"), (r"\bdict\[", "Mapping["))
"""What a field accepts besides its own type, as patterns: the config converts it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeywordSetting:
    """One keyword argument of a Python class."""

    section: str
    name: str
    type_text: str
    """The accepted types, as source text."""
    default: object
    text: str
    """The help text."""

    @property
    def default_text(self) -> str:
        """The default as source text; empty if the help text says what the default is."""
        return "" if self.default is None or self.default in ((), {}) else repr(self.default).replace("'", '"')


def keyword_settings(algo: str) -> Iterator[KeywordSetting]:
    """The keyword arguments of an algorithm's class, section by section."""
    for section in ORDER:
        cls = section_types(algo)[section]
        texts, hints = field_help(cls), get_type_hints(cls)
        for item in fields(cls):
            if item.name not in POSITIONAL:
                yield KeywordSetting(
                    section=section,
                    name=item.name,
                    type_text=TYPES.get(item.name) or _type_text(hints[item.name]),
                    default=DEFAULTS.get(item.name, _default(item)),
                    text=TEXTS.get(item.name) or texts.get(item.name, ""),
                )


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _type_text(annotation: Any) -> str:
    """The accepted types of a field as source text."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(_type_text(member) for member in get_args(annotation))
    if annotation is types.NoneType:
        return "None"
    text = re.sub(r"\b(typing|pathlib|collections\.abc)\.", "", inspect.formatannotation(annotation))
    for pattern, replacement in ACCEPTED:
        text = re.sub(pattern, replacement, text)
    return text.replace("'", '"')
