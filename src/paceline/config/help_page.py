"""The text that `--help` prints: the common flags first, the others by group.

--help          what the command does, its own flags, the common flags, the names of all others
--help GROUP    the flags of one group
--help-all      all flags
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paceline.config.flag import Flag
from paceline.config.names import ALIASES
from paceline.errors import ConfigError, nearest

COMMON = (
    "env", "config", "num_workers", "n_envs", "total_timesteps", "duration", "learning_rate", "n_steps", "batch_size",
    "seed", "output_dir", "resume",
)  # fmt: skip
"""The settings that most command lines need."""

COLUMN = 26
"""Where the help texts begin."""
WIDEST = 100


@dataclass(frozen=True, slots=True)
class HelpPage:
    """What a command's help pages are made of."""

    prog: str
    description: str
    own: Sequence[Flag]
    """The command's own flags."""
    groups: Mapping[str, Sequence[Flag]]
    """The flags of the settings, by group."""

    def asked_for(self, words: Sequence[str]) -> str | None:
        """The page that a command line asks for; None if it asks for none.

        Raises:
            ConfigError: It asks for a group that does not exist.
        """
        if "--help-all" in words:
            return f"{self._page(self._others())}\n{self._aliases()}"
        place = next((place for place, word in enumerate(words) if word in ("-h", "--help")), None)
        if place is None:
            return None
        group = next(iter(words[place + 1 :]), "-")
        if group.startswith("-"):
            return self._page({}) + self._pointer()
        if group not in self.groups:
            raise ConfigError(f"--help {group}: no such group of flags. {nearest(group, self.groups)}")
        return _section(f"{group} flags", self.groups[group])

    def _page(self, groups: Mapping[str, Sequence[Flag]]) -> str:
        """Usage, description, the command's own flags, the common flags and these groups."""
        common = [flag for flags in self.groups.values() for flag in flags if flag.name in COMMON]
        common.sort(key=lambda flag: COMMON.index(flag.name))
        command = self.prog.removeprefix("paceline ")
        parts = [f"usage: {self.prog} [FLAGS]\n", _wrapped(self.description)]
        if self.own:
            parts.append(_section(f"flags of {command}", self.own))
        parts.append(_section("common flags", common))
        parts += [_section(f"{name} flags", flags) for name, flags in groups.items()]
        return "\n".join(parts)

    def _pointer(self) -> str:
        """The names of the flags that are neither common nor the command's own, and how to read about them."""
        lines = ["", _wrapped(f"More flags. {self.prog} --help GROUP describes those of a group, --help-all all:")]
        for name, flags in self._others().items():
            names = ", ".join(flag.name.replace("_", "-") for flag in flags)
            lines.append(_wrapped(names, first=f"  {name:<12}", indent=14))
        return "\n".join(lines).replace("\n\n  ", "\n  ")

    def _aliases(self) -> str:
        known = {flag.name for flags in self.groups.values() for flag in flags}
        pairs = [f"--{alias} (--{name})".replace("_", "-") for alias, name in ALIASES.items() if name in known]
        return _wrapped(f"Other names: {', '.join(pairs)}.")

    def _others(self) -> dict[str, list[Flag]]:
        others = {name: [flag for flag in flags if flag.name not in COMMON] for name, flags in self.groups.items()}
        return {name: flags for name, flags in others.items() if flags}


def _section(title: str, flags: Iterable[Flag]) -> str:
    return f"{title}:\n" + "".join(map(_described, flags))


def _described(flag: Flag) -> str:
    """One flag: its name and value on the left, its text and default on the right, or below if the left is long."""
    head = f"  {flag.spelled} {flag.metavar}"
    text = f"{flag.text} ({flag.note})"
    if len(head) + 2 <= COLUMN:
        return _wrapped(text, first=f"{head:<{COLUMN}}", indent=COLUMN)
    return f"{head}\n{_wrapped(text, first=' ' * COLUMN, indent=COLUMN)}"


def _wrapped(text: str, *, first: str = "", indent: int = 0) -> str:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    lines = textwrap.wrap(
        text,
        max(width, 2 * COLUMN),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(lines) + "\n"
