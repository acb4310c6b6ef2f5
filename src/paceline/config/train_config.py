"""`TrainConfig`: all settings of a run, built from Python, YAML or flags and checked before training starts.

    flags ----+
    YAML  ----+--> flat names -> coerce -> sections -> TrainConfig (frozen, checked)
    Python ---+

A value is checked in its own section (`paceline.config.sections`), a relation between
sections here. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml

from paceline.config.algorithm_settings import AlgorithmSettings
from paceline.config.algorithms import ALGORITHMS
from paceline.config.coerce import coerce
from paceline.config.groups import default_group_size, divisors, enough_envs
from paceline.config.names import ALIASES, ANSWERS, FAMILIAR, REMOVED, canonical, removed
from paceline.config.plain_yaml import load_file
from paceline.config.ppo_settings import PPOConfig
from paceline.config.sections import DEFAULT_N_ENVS, EnvConfig, ParallelConfig, PolicyConfig, RunConfig
from paceline.errors import ConfigError, closest, nearest

DEFAULT_ALGO = "ppo"
SHARD_ROWS, WIDE_SHARD_ROWS, WIDE = 128, 64, 128
"""Fewest rows per default shard: SHARD_ROWS, or WIDE_SHARD_ROWS for images and for layers of at least WIDE units."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All settings of one training run.

    Construction replaces the shorthand `parallel.num_envs_per_worker` by the number of envs in `env.n_envs`, so that a
    saved config means the same with any number of workers.
    """

    env: EnvConfig
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    training: AlgorithmSettings = field(default_factory=PPOConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        """Resolve the number of envs and check relations between sections."""
        n_envs = _n_envs(self.env, self.parallel)
        scales = self.env.normalize_reward
        scales = self.training.normalizes_reward if scales is None else scales
        object.__setattr__(self, "env", replace(self.env, n_envs=n_envs, normalize_reward=scales))
        object.__setattr__(self, "parallel", replace(self.parallel, num_envs_per_worker=None))
        self.check_groups(image=False)
        if self.training.splits_batches:
            object.__setattr__(self, "training", replace(self.training, batch_size=self._batch_size()))
        self.training.check(self.env, self.parallel, self.run)

    @property
    def n_envs(self) -> int:
        """Number of envs over all workers (B)."""
        return self.env.n_envs or DEFAULT_N_ENVS

    @property
    def env_name(self) -> str:
        """Name of the env: its id or import path, or the name of the callable."""
        return self.env.env if isinstance(self.env.env, str) else _name(self.env.env)

    @property
    def batch_steps(self) -> int:
        """Steps in one rollout of all envs: n_steps * n_envs."""
        return self.rollout_steps * self.n_envs

    @property
    def rollout_steps(self) -> int:
        """Steps that each env takes at a time (T)."""
        return self.training.rollout_steps

    @property
    def num_workers(self) -> int | Literal["auto"]:
        """Worker processes asked for. With one env, auto means sequential (0)."""
        alone = self.parallel.num_workers == "auto" and self.n_envs == 1 and self.parallel.runtime != "ray"
        return 0 if alone else self.parallel.num_workers

    def group_size(self, *, image: bool) -> int:
        """Envs per group (G): as given, else from n_envs alone, so that it is the same on every machine.

        Args:
            image: Whether the policy sees images: a forward then costs enough for larger groups to pay.
        """
        if self.parallel.group_size is not None:
            return self.parallel.group_size
        return default_group_size(self.n_envs, image=image)

    def grad_shards(self, *, image: bool) -> int:
        """Shards of a minibatch: as given, else by network and minibatch, so that it is the same on every machine.

        Below a minimum number of rows a shard costs more than the parallel work saves (docs/explain/performance.md).
        """
        if self.training.grad_shards is not None:
            return self.training.grad_shards
        if self.training.asynchronous:
            return 1  # no worker computes gradients of a batch in these modes
        rows = min(self.training.batch_size or self.batch_steps, self.batch_steps)
        wide = image or max((*self.policy.hidden_sizes, *(self.policy.value_hidden_sizes or ())), default=0) >= WIDE
        return max(1, min(8 if image else 2, rows // (WIDE_SHARD_ROWS if wide else SHARD_ROWS)))

    def shard_rows(self, shards: int) -> int:
        """Steps in the largest of the shards of a minibatch."""
        return -(-min(self._batch_size(), self.batch_steps) // shards)

    def check_groups(self, *, image: bool) -> None:
        """Raise ConfigError if group_size does not divide n_envs, or if a worker would own no group.

        Called on construction for vector observations, and again once the env is known to show images.
        """
        size, workers = self.group_size(image=image), self.parallel.known_workers
        if self.n_envs % size:
            nearby = min(divisors(self.n_envs), key=lambda divisor: abs(divisor - size))
            raise ConfigError(f"group_size={size}: must divide n_envs={self.n_envs}. Try {nearby}.")
        groups = self.n_envs // size
        if workers is None or workers <= groups:
            return
        what, fewer = f"num_workers={workers}", f"num_workers={groups}"
        if self.parallel.runtime == "ray":
            what = f"nodes*workers_per_node = {self.parallel.nodes}*{self.parallel.workers_per_node} = {workers}"
            fewer = f"{groups} workers or fewer"
        if (of_images := self.n_envs // self.group_size(image=True)) < groups:
            fewer += f" ({of_images} for images)"
        fitting = [divisor for divisor in divisors(self.n_envs) if self.n_envs // divisor >= workers]
        more = enough_envs(workers, self.n_envs, self.parallel.group_size, self._splits_into_minibatches)
        other = f"group_size={max(fitting)}" if fitting else more and f"n_envs={more}"
        raise ConfigError(
            f"{what}: a worker owns whole groups, and n_envs={self.n_envs} in groups of {size} makes {groups}. "
            f"Use {fewer}{f', or {other}, which changes the weights' if other else ''}."
        )

    def _splits_into_minibatches(self, n_envs: int) -> bool:
        """Whether the given minibatch size would suit this number of envs."""
        size, total = self.training.batch_size, self.rollout_steps * n_envs
        return not self.training.splits_batches or size is None or size >= total or total % size == 0

    def _batch_size(self) -> int:
        size, n_steps, total = self.training.batch_size, self.rollout_steps, self.batch_steps
        if self.training.normalize_advantage and total < 2:
            raise ConfigError(
                "n_steps*n_envs = 1: one advantage has no standard deviation (normalize_advantage=True). "
                "Use more steps or envs."
            )
        if size is None:
            return max(divisor for divisor in divisors(total) if divisor <= self.training.largest_default_batch)
        if self._splits_into_minibatches(self.n_envs):
            return size
        nearby = min((d for d in divisors(total) if d > 1), key=lambda divisor: abs(divisor - size))
        raise ConfigError(
            f"batch_size={size}: must divide n_steps*n_envs = {n_steps}*{self.n_envs} = {total} "
            f"(or be at least that, for one full batch). Try {nearby}."
        )

    @classmethod
    def from_flat(cls, **settings: Any) -> TrainConfig:
        """Build from flag names, `-` or `_`, with values as text or as Python objects.

        Raises:
            ConfigError: An unknown name (the nearest is suggested), a bad value, or settings that do not fit together.
        """
        return _build(_sections(settings, settings.get("algo", DEFAULT_ALGO)))

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> TrainConfig:
        """Build from a YAML file with the sections env, parallel, training, policy and run; overrides win.

        Raises:
            ConfigError: As `from_flat`, and for YAML that is damaged or asks for Python objects; names file and key.
        """
        below = _sections_of_file(Path(path), overrides.get("algo"))
        algo = overrides.get("algo") or below["run"].get("algo", DEFAULT_ALGO)
        return _build(_over(below, _sections(overrides, algo)))

    @classmethod
    def from_run(cls, folder: Path, **overrides: Any) -> TrainConfig:
        """Build from the config of an earlier run, to resume it; overrides win.

        `overwrite`, `init_from` and `trust_env_state` of the earlier run are reset: they say how that run started.
        """
        # Unpickling runs code. Only the command line may allow it, never the config of the folder that is loaded.
        began = {"overwrite": False, "init_from": None, "output_dir": folder, "trust_env_state": False}
        return cls.from_yaml(folder / "config.yaml", **{**began, **overrides})

    def merge(self, **overrides: Any) -> TrainConfig:
        """A copy with some settings changed, by flag name."""
        mine = {name: _values(getattr(self, name)) for name in SECTIONS}
        return _build(_over(mine, _sections(overrides, self.run.algo)))

    def to_yaml(self) -> str:
        """The whole config as YAML that `from_yaml` reads back. Python objects become a readable placeholder."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def to_dict(self) -> Sections:
        """The sections as plain values, as a YAML or JSON file holds them."""
        return {name: {key: _plain(value) for key, value in _values(getattr(self, name)).items()} for name in SECTIONS}


SECTIONS = ("env", "parallel", "training", "policy", "run")
"""The sections of a YAML file, in order."""


def section_types(algo: str) -> dict[str, type[Any]]:
    """The dataclass of each section; `training` is that of the algorithm.

    Raises:
        ConfigError: There is no such algorithm.
    """
    if not isinstance(algo, str) or algo not in ALGORITHMS:  # from a file it may be anything
        raise ConfigError(f"algo={algo!r}: no such algorithm. {nearest(str(algo), ALGORITHMS)}")
    return dict(
        zip(SECTIONS, (EnvConfig, ParallelConfig, ALGORITHMS[algo].settings, PolicyConfig, RunConfig), strict=True)
    )


def section_of(algo: str) -> dict[str, str]:
    """The section of each setting. Names are unique over sections: flags carry no prefix."""
    return {item.name: section for section, cls in section_types(algo).items() for item in fields(cls)}


def _n_envs(env: EnvConfig, parallel: ParallelConfig) -> int:
    per_worker, workers = parallel.num_envs_per_worker, parallel.known_workers
    if per_worker is None:
        return DEFAULT_N_ENVS if env.n_envs is None else env.n_envs
    if workers is None:
        flags, what = ("--num-workers N", "num_workers=auto")
        if parallel.runtime == "ray":
            flags, what = ("--nodes N --workers-per-node W", "runtime=ray")
        raise ConfigError(
            f"num_envs_per_worker={per_worker}: needs a number of workers ({what}). "
            f"Use {flags}, or --n-envs for the total."
        )
    total = max(workers, 1) * per_worker
    if env.n_envs is not None and env.n_envs != total:
        raise ConfigError(
            f"n_envs={env.n_envs}: differs from num_workers*num_envs_per_worker = {max(workers, 1)}*{per_worker} = "
            f"{total}. Give one of the two."
        )
    return total


Sections = dict[str, dict[str, Any]]


def _sections(flat: Mapping[str, Any], algo: str) -> Sections:
    """Flat names sorted into sections, aliases resolved."""
    result: Sections = {name: {} for name in SECTIONS}
    known = section_of(algo)
    for given, value in flat.items():
        name = canonical(given)
        if name in REMOVED:
            if value in (False, None):
                continue
            raise ConfigError(removed(given))
        if name not in known:
            raise ConfigError(f"{given}: no such setting. {hint_about(name, algo, [*known, *ALIASES])}")
        if name in result[known[name]]:
            names = " and ".join(each for each in flat if canonical(each) == name)
            raise ConfigError(f"{name}: given twice ({names} are the same). Give it once.")
        result[known[name]][name] = value
    return result


def hint_about(name: str, algo: str, known: Collection[str], spell: Callable[[str], str] = str) -> str:
    """The end of an error text about an unknown setting: what to write instead, or where it exists.

    Args:
        name: The setting, with underscores.
        algo: The algorithm that does not have it.
        known: Names that would be accepted.
        spell: How the user writes a setting.
    """
    if name in ANSWERS:
        return ANSWERS[name]
    meant = FAMILIAR.get(name, name)
    if meant not in known and (others := [other for other in ALGORITHMS if meant in section_of(other)]):
        it = "It" if meant == name else repr(spell(meant))
        first = ", ".join(others[:-1])
        return f"{it} is a setting of {first + ' and ' if first else ''}{others[-1]}, not of {algo}."
    close = meant if meant in known else closest(name, known)
    return f"Did you mean {spell(close)!r}?" if close else f"`paceline train {algo} --help-all` lists all settings."


def _sections_of_file(path: Path, algo: str | None) -> Sections:
    """The sections of a YAML file, every name checked; `algo` wins over the one that the file names."""
    content = load_file(path)
    where = f"config {str(path)!r}"
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where}: must be sections of settings ({', '.join(SECTIONS)}). Start with `env:`.")
    run = content.get("run")
    algo = algo or str((run.get("algo") if isinstance(run, Mapping) else None) or DEFAULT_ALGO)
    types, known = section_types(algo), section_of(algo)
    flat: dict[str, Any] = {}
    for section, settings in content.items():
        if section not in SECTIONS:
            name = canonical(str(section))
            hint = f"It belongs in section {known[name]!r}." if name in known else nearest(str(section), SECTIONS)
            raise ConfigError(f"{where}: no section {section!r}. {hint}")
        if not isinstance(settings, Mapping | None):
            raise ConfigError(
                f"{where}: section {section!r} must hold settings, one `name: value` a line (got {settings!r})."
            )
        for given, value in (settings or {}).items():
            name = canonical(str(given))
            if known.get(name) != section and name not in REMOVED:
                here = [item.name for item in fields(types[section])]
                hint = f"It belongs in section {known[name]!r}." if name in known else hint_about(name, algo, here)
                raise ConfigError(f"{where}: section {section!r} has no setting {given!r}. {hint}")
            if name in flat:
                raise ConfigError(f"{where}: {given!r} given twice (it means {name}). Give it once.")
            flat[name] = value
    return _sections(flat, algo)


def named_in(path: Path, algo: str) -> set[str]:
    """Names of the settings that a config file sets, for an algorithm.

    Raises:
        ConfigError: The file is not a valid config.
    """
    return {name for section in _sections_of_file(path, algo).values() for name in section}


def _over(below: Sections, above: Sections) -> Sections:
    """Merge two sets of sections; settings of `above` win."""
    result = {name: {**below[name], **above[name]} for name in SECTIONS}
    # n_envs and its shorthand num_envs_per_worker exclude each other: the one in `above` replaces the other.
    if "num_envs_per_worker" in above["parallel"] and "n_envs" not in above["env"]:
        result["env"].pop("n_envs", None)
    elif "n_envs" in above["env"] and "num_envs_per_worker" not in above["parallel"]:
        result["parallel"].pop("num_envs_per_worker", None)
    return result


def _build(sections: Sections) -> TrainConfig:
    if "env" not in sections["env"]:
        raise ConfigError("env: required (none given). Use --env CartPole-v1, for example, or a --config with an env.")
    built = {}
    for section, cls in section_types(sections["run"].get("algo", DEFAULT_ALGO)).items():
        hints = get_type_hints(cls)
        built[section] = cls(**{name: coerce(value, hints[name], name) for name, value in sections[section].items()})
    return TrainConfig(**built)


def _values(section: Any) -> dict[str, Any]:
    return {item.name: getattr(section, item.name) for item in fields(section)}


def _plain(value: Any) -> Any:
    """Convert a value to one that YAML can hold."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return f"<Python object {getattr(value, '__module__', '?')}:{_name(value)}>"


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))
