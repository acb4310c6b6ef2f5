"""Generates command-line flags from the fields of the config dataclasses, and parses them.

`tyro` returns a dict that holds only the flags on the command line, as text. The config then converts
the text by the type of the field, with the same code as for YAML. So an omitted flag never overrides a
config file, and a value means the same in a flag and in a file.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar, Union, get_type_hints

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from paceline.config.coerce import coerce
from paceline.config.help_texts import field_help
from paceline.config.names import ALIASES, FAMILIAR, REMOVED, canonical, removed
from paceline.config.sections import RunConfig
from paceline.config.train_config import TrainConfig, named_in, section_of, section_types
from paceline.errors import ConfigError, nearest
from paceline.measure.folder import CONFIG

Options = TypeVar("Options")

ELSEWHERE = {"algo"}
"""Settings that are positional arguments, not flags."""

BARE = {"pin_cores": "auto"}
"""The value of a flag that is given without one. (A bare boolean flag means true.)"""

ORDER = ("env", "training", "run", "policy", "parallel")
"""Sections in the order of the help page: what users set first comes first."""

SEPARATE = {
    "self-play": (
        "opponents", "snapshot_every", "pool_size", "pool_offered", "opponent_sampling", "opponent_epsilon",
    ),
    "ray cluster": ("runtime", "ray_address", "nodes", "workers_per_node", "on_node_loss"),
}  # fmt: skip
"""Settings that the help page lists under own headings, after all sections. In YAML they stay in their section."""

METAVARS: dict[Any, str] = {bool: "true|false", int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


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
            raise ConfigError(
                f"resume {str(missing)!r}: no run there ({CONFIG} is missing). Give a run folder; its config "
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
        ConfigError: An unknown flag (the nearest is suggested) or a bad value.
        SystemExit: With 0 after --help, with 2 for a flag that lacks its value.
    """
    own_name = prog.removeprefix("paceline ").strip() or "command"  # heading of its own flags: "cyber train options"
    groups: dict[str, Any] = {own_name: _group(extra), **_setting_groups(algo, defaults or {})}
    groups["config"] = _flag(str, "YAML file with the sections env, parallel, training, policy and run; flags win.", "")
    given, strays = tyro.cli(
        _dict_type("Flags", groups),
        prog=prog,
        description=description,
        args=_without_no(argv, [*section_types(algo).values(), extra]),
        config=(tyro.conf.OmitArgPrefixes,),
        return_unknown_args=True,
    )
    if strays:
        raise ConfigError(_unknown_text(strays, [*section_of(algo), *get_type_hints(extra)]))
    own, path = given.pop(own_name, {}), given.pop("config", None)
    flat = {name: value for section in given.values() for name, value in section.items()}
    hints = get_type_hints(extra)
    options = extra(**{name: coerce(value, hints[name], name) for name, value in own.items()})
    return Given(algo, flat, path, options)


def _resume_path(flat: Mapping[str, Any]) -> Path | None:
    """The path that the flags ask to resume from, which may not exist; None without --resume."""
    resume = coerce(flat.get("resume", False), get_type_hints(RunConfig)["resume"], "resume")
    named = flat.get("output_dir") if resume is True else resume
    return Path(named) if named else None


def _setting_groups(algo: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The boxes of the help page: the sections in the order of `ORDER`, then those of `SEPARATE`."""
    types, separate = section_types(algo), {name for names in SEPARATE.values() for name in names}
    groups = {section: _group(types[section], separate, defaults) for section in ORDER}
    sections = section_of(algo)
    for title, names in SEPARATE.items():
        cls = types[sections[names[0]]]
        groups[title] = _group(cls, {item.name for item in fields(cls)} - set(names), defaults)
    return groups


def _group(cls: type[Any], leave_out: Set[str] = frozenset(), defaults: Mapping[str, Any] | None = None) -> Any:
    """The flags of one dataclass, except some, as a dict type whose keys may be absent."""
    hints, texts, own = get_type_hints(cls), field_help(cls), defaults or {}
    flags = {
        item.name: _flag(
            hints[item.name],
            # A text may end with a default that is computed, or None: the command's own default replaces it.
            texts.get(item.name, "").partition(" Default: ")[0] if item.name in own else texts.get(item.name, ""),
            _shown(own[item.name]) if item.name in own else _default(item),
            _aliases(item.name),
            BARE.get(item.name, "true" if bool in _kinds(hints[item.name]) else None),
        )
        for item in fields(cls)
        if item.name not in ELSEWHERE and item.name not in leave_out
    }
    return _dict_type(cls.__name__, flags)


def _dict_type(name: str, keys: dict[str, Any]) -> type[dict[str, Any]]:
    # mypy supports only a TypedDict with literal keys; these keys come from dataclass fields.
    made: Any = TypedDict(name, keys, total=False)  # type: ignore[misc]
    return typing.cast("type[dict[str, Any]]", made)


def _flag(annotation: Any, text: str, hint: str, aliases: tuple[str, ...] = (), bare: str | None = None) -> Any:
    """One flag whose value stays text; `coerce` converts it later.

    `bare` is its value if given without one; None if a value is required.
    """
    many = bool({tuple, dict} & _kinds(annotation))
    nargs: Any = "*" if many else (0, 1) if bare is not None else 1
    spec = PrimitiveConstructorSpec[Any](
        nargs=nargs,
        metavar=f"[{_metavar(annotation)}]" if nargs != 1 else _metavar(annotation),
        instance_from_str=lambda words: words if many else words[0] if words else bare,
        is_instance=lambda _: True,
        str_from_instance=lambda value: [str(value)],
    )
    return Annotated[Any, spec, tyro.conf.arg(help=text, help_behavior_hint=hint, aliases=aliases or None)]


def _members(annotation: Any) -> list[Any]:
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    return [arg for arg in typing.get_args(annotation) if arg is not type(None)] if union else [annotation]


def _kinds(annotation: Any) -> set[Any]:
    return {typing.get_origin(member) or member for member in _members(annotation)}


def _metavar(annotation: Any) -> str:
    words: list[str] = []
    for member in _members(annotation):
        origin, args = typing.get_origin(member), typing.get_args(member)
        if origin is Literal:
            words.extend(str(arg) for arg in args)
        elif origin is tuple:
            words.append(f"{_metavar(args[0])} ...")
        elif origin is dict:
            words.append("KEY=VALUE ...")
        elif member in METAVARS:
            words.append(METAVARS[member])
    return "|".join(words)


def _default(item: Field[Any]) -> str:
    """The end of the help text: the default value."""
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    if value is MISSING:
        return "(required, here or in --config)"
    return "" if value is None or value == () or value == {} else _shown(value)


def _shown(value: Any) -> str:
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"(default: {shown.lower() if isinstance(value, bool) else shown})"


def _aliases(name: str) -> tuple[str, ...]:
    return tuple(f"--{alias.replace('_', '-')}" for alias, meant in ALIASES.items() if meant == name)


def _without_no(argv: Sequence[str], types: Sequence[type[Any]]) -> list[str]:
    """Replace `--no-quiet` by `--quiet false`, for every boolean setting."""
    hints = [hint for cls in types for hint in get_type_hints(cls).items()]
    switches = {
        f"--no-{name.replace('_', '-')}": (f"--{name}", "false") for name, annotation in hints if annotation is bool
    }
    return [part for word in argv for part in switches.get(word.replace("_", "-"), (word,))]


def _unknown_text(strays: Sequence[str], names: Sequence[str]) -> str:
    """The error text for unknown flags and stray words."""
    flags = [word for word in strays if word.startswith("-")]
    if not flags:
        return f"{strays[0]}: not expected here. A value follows its flag, as in --env CartPole-v1."
    word = flags[0].partition("=")[0]
    if canonical(word.lstrip("-")) in REMOVED:
        return removed(word)
    flagged = [name for name in [*names, *ALIASES, "config"] if name not in ELSEWHERE]
    known = [f"--{name.replace('_', '-')}" for name in flagged]
    meant = FAMILIAR.get(canonical(word.lstrip("-")))
    if meant in flagged:
        return f"{word}: no such flag. Did you mean '--{meant.replace('_', '-')}'?"
    return f"{word}: no such flag. {nearest(word.replace('_', '-'), known)}"
