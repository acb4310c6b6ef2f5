"""Generates command-line flags from the fields of the config dataclasses, and parses them.

Parsing gives a dict that holds only the flags on the command line, as text. The config then converts
the text by the type of the field, with the same code as for YAML. So an omitted flag never overrides a
config file, and a value means the same in a flag and in a file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from paceline.config.coerce import coerce
from paceline.config.flag import Flag, flags_of
from paceline.config.help_page import HelpPage
from paceline.config.names import ALIASES, REMOVED, canonical, removed
from paceline.config.sections import RunConfig
from paceline.config.train_config import TrainConfig, hint_about, named_in, section_of, section_types
from paceline.errors import ConfigError
from paceline.measure.folder import CONFIG, folders_beside

Options = TypeVar("Options")

ELSEWHERE = {"algo"}
"""Settings that are positional arguments, not flags."""

ORDER = ("env", "training", "run", "policy", "parallel")
"""Sections in the order of the help page: what users set first comes first."""

SEPARATE = {
    "self-play": (
        "opponents", "snapshot_every", "pool_size", "pool_offered", "opponent_sampling", "opponent_epsilon",
    ),
    "ray": ("runtime", "ray_address", "nodes", "workers_per_node", "on_node_loss"),
}  # fmt: skip
"""Settings that the help page lists under own headings, after all sections. In YAML they stay in their section."""

CONFIG_FLAG = Flag(
    name="config",
    annotation=Path,
    text="YAML file with the sections env, parallel, training, policy and run. Flags override it.",
    note="default: none",
)

NUMBER = re.compile(r"-[\d.]")
"""How a value that begins with a hyphen begins."""


@dataclass(frozen=True)
class NoOptions:
    """The `extra` of a command without flags of its own."""


@dataclass(frozen=True, slots=True)
class Given(Generic[Options]):
    """A parsed command line, before it is converted to a config."""

    algo: str
    flags: Mapping[str, Any]
    """Settings by name, as text."""
    path: str | None
    """Path of the config file, if --config was given."""
    options: Options
    """The command's own flags."""

    @property
    def resumed(self) -> Path | None:
        """Folder of the run that the command resumes and takes its config from; None if there is none."""
        path = None if self.path is not None else _resume_path(self.flags)
        if path is None:
            return None
        folders = (path, *path.parents[:2])  # the run, its checkpoints, or one of them
        return next((folder for folder in folders if (folder / CONFIG).is_file()), None)

    def names(self) -> set[str]:
        """Names of the settings given by flags, by the config file, or by the resumed run (which sets all of them)."""
        if self.resumed is not None:
            return set(section_of(self.algo))
        return {*map(canonical, self.flags), *(named_in(Path(self.path), self.algo) if self.path is not None else ())}

    def config(self, beneath: Mapping[str, Any] | None = None) -> TrainConfig:
        """Build the config.

        Args:
            beneath: Defaults for settings that neither flags, nor the file, nor a resumed run give.
        """
        named = self.names() if beneath else set()
        below = {name: value for name, value in (beneath or {}).items() if name not in named}
        settings = {"algo": self.algo, **below, **self.flags}
        if self.path is not None:
            return TrainConfig.from_yaml(self.path, **settings)
        if (folder := self.resumed) is not None:
            return TrainConfig.from_run(folder, **settings)
        if "env" not in settings and (missing := _resume_path(self.flags)) is not None:
            if not missing.exists():
                raise ConfigError(f"resume={str(missing)!r}: no such folder. {folders_beside(missing)}")
            raise ConfigError(
                f"resume={str(missing)!r}: not a run ({CONFIG} is missing). Give a run folder; its config "
                "says where its checkpoints are."
            )
        return TrainConfig.from_flat(**settings)


def parse(
    argv: Sequence[str], *, prog: str, description: str, algo: str = "ppo", extra: type[Options]
) -> tuple[TrainConfig, Options]:
    """Parse a command line into a config and the command's own options; flags win over --config FILE. See `read`."""
    given = read(argv, prog=prog, description=description, algo=algo, extra=extra)
    return given.config(), given.options


def read(
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    algo: str = "ppo",
    extra: type[Options],
    defaults: Mapping[str, Any] | None = None,
) -> Given[Options]:
    """Parse a command line.

    Args:
        argv: The words after the command.
        prog: The command, for the help text.
        description: What it does, for the help text.
        algo: The algorithm to configure.
        extra: A dataclass of the command's own flags, all with defaults (`NoOptions` for none).
        defaults: Default values, or a text about them, for the help page: of settings for which the command has others
            than the algorithm.

    Raises:
        ConfigError: An unknown flag (the nearest is suggested), a flag that lacks its value, or a bad value.
        SystemExit: With 0 after --help.
    """
    own, groups = flags_of(extra, {}), _groups(algo, defaults or {})
    page = HelpPage(prog, description, own, groups).asked_for(argv)
    if page is not None:
        sys.stdout.write(page)
        raise SystemExit(0)
    known = {flag.name: flag for flags in (own, *groups.values()) for flag in flags}
    flat = _values(argv, algo, known)
    path = flat.pop(CONFIG_FLAG.name, None)
    options = extra(
        **{flag.name: coerce(flat.pop(flag.name), flag.annotation, flag.name) for flag in own if flag.name in flat}
    )
    return Given(algo, flat, path, options)


def _resume_path(flat: Mapping[str, Any]) -> Path | None:
    """The path that the flags ask to resume from, which may not exist; None without --resume."""
    resume = coerce(flat.get("resume", False), get_type_hints(RunConfig)["resume"], "resume")
    named = flat.get("output_dir") if resume is True else resume
    return Path(named) if named else None


def _groups(algo: str, defaults: Mapping[str, Any]) -> dict[str, list[Flag]]:
    """The groups of the help page: the sections in the order of `ORDER`, then those of `SEPARATE`."""
    group_of = {name: group for group, names in SEPARATE.items() for name in names}
    groups: dict[str, list[Flag]] = {group: [] for group in (*ORDER, *SEPARATE)}
    groups["run"].append(CONFIG_FLAG)
    for section, cls in section_types(algo).items():
        for flag in flags_of(cls, defaults):
            if flag.name not in ELSEWHERE:
                groups[group_of.get(flag.name, section)].append(flag)
    return groups


def _values(words: Sequence[str], algo: str, known: Mapping[str, Flag]) -> dict[str, Any]:
    """The value of each flag on a command line, as text or a list of texts; of a flag given twice, the last one."""
    given: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word, equals, value = words[place].partition("=")
        place += 1
        if not word.startswith("-"):
            raise ConfigError(
                f"{words[place - 1]}: not expected here. A value follows its flag, as in --env CartPole-v1."
            )
        name = canonical(word.removeprefix("--"))
        flag, turned_off = known.get(name), known.get(name.removeprefix("no_"))
        if flag is None and turned_off is not None and turned_off.switch and not equals:
            given[turned_off.name] = "false"
            continue
        if flag is None:
            raise ConfigError(_unknown_text(word, algo, known))
        values = [value] if equals else []
        while not equals and place < len(words) and (flag.many or not values) and _is_value(words[place]):
            values.append(words[place])
            place += 1
        if not values and not flag.many and flag.bare is None:
            raise ConfigError(f"{word}: needs a value. Write {flag.spelled} {flag.metavar}.")
        given[name] = values if flag.many else values[0] if values else flag.bare
    return given


def _is_value(word: str) -> bool:
    return not word.startswith("-") or NUMBER.match(word) is not None


def _unknown_text(word: str, algo: str, known: Iterable[str]) -> str:
    """The error text for an unknown flag."""
    name = canonical(word.lstrip("-"))
    if name in REMOVED:
        return removed(word)
    hint = hint_about(name, algo, [*known, *ALIASES], lambda each: f"--{each.replace('_', '-')}")
    return f"{word}: no such flag. {hint}"
