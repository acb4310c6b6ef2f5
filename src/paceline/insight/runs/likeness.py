"""Checks whether runs are comparable: finds differences in task, settings, budget and machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from paceline.config.coerce import duration_s
from paceline.errors import ConfigError
from paceline.insight.runs.columns import section_of
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import Side


class DifferenceKind(Enum):
    """What a difference means for the comparison. The value is shown to the user."""

    TASK = "another task, so neither speed nor learning can be compared"
    SETTINGS = "not like for like"
    BUDGET = "another budget, so compare only the steps that both have trained"
    MACHINE = "another machine, so speeds cannot be compared"
    DETAIL = "may affect the result"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting or property in which the sides differ."""

    what: str
    values: tuple[str, ...]  # one per side
    kind: DifferenceKind

    def __str__(self) -> str:
        return f"{self.what} {' against '.join(self.values)}"


_ENV = {"env_kwargs": DifferenceKind.TASK, "wrappers": DifferenceKind.TASK, "frame_stack": DifferenceKind.TASK}
_ENV_NOT_COMPARED = {"env", "n_envs", "env_timeout_s", "start_timeout_s"}
_RUN = {
    "device": DifferenceKind.SETTINGS,
    "init_from": DifferenceKind.SETTINGS,
    "total_timesteps": DifferenceKind.BUDGET,
    "total_episodes": DifferenceKind.BUDGET,
    "duration": DifferenceKind.BUDGET,
    "eval_freq": DifferenceKind.DETAIL,
    "n_eval_episodes": DifferenceKind.DETAIL,
    "eval_env": DifferenceKind.SETTINGS,
    "eval_env_kwargs": DifferenceKind.SETTINGS,
}
_NO_SETTING = {DifferenceKind.MACHINE, DifferenceKind.DETAIL}
_PACKAGES = ("paceline", "torch", "numpy", "gymnasium")


def differences(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """All differences except seed, workers and folders; the most serious first."""
    # Settings of different algorithms are not compared: they share names but rarely meaning.
    one_algo = len({run.algo for side in sides for run in side.runs}) == 1
    facts = [[_facts(run, training=one_algo) for run in side.runs] for side in sides]
    names = dict.fromkeys(name for side in facts for run in side for name in run)
    found = []
    for name in names:
        values = [list(dict.fromkeys(run[name][1] for run in side if name in run)) for side in facts]
        if len({value for side in values for value in side}) > 1:
            kind = next(run[name][0] for side in facts for run in side if name in run)
            found.append(Difference(name, tuple(" or ".join(side) or "unknown" for side in values), kind))
    order = list(DifferenceKind)
    return tuple(sorted(found, key=lambda difference: order.index(difference.kind)))


def same_task(base: Side, side: Side) -> bool:
    """Whether two sides have the same task (env and its arguments), so that speed and learning can be compared."""
    return side is base or not any(one.kind is DifferenceKind.TASK for one in differences([base, side]))


def same_config(a: RunResult, b: RunResult) -> bool:
    """Whether two runs have the same settings, workers included; seed, folders, machine and versions may differ."""
    settings = [{name: fact for name, fact in _facts(run).items() if fact[0] not in _NO_SETTING} for run in (a, b)]
    return (
        settings[0] == settings[1] and a.num_workers == b.num_workers and a.section("parallel") == b.section("parallel")
    )


def remarks(sides: Sequence[Side], found: Sequence[Difference]) -> tuple[str, ...]:
    """Warnings for the reader of the comparison, one sentence each."""
    said = [f"the runs differ in {one.what} ({_values_by_side(one, sides)}): {one.kind.value}." for one in found]
    for side in sides:
        many = len(side.runs) > 1
        for run in side.runs:
            name = str(run.path) if many else side.name
            if not run.finished:
                said.append(f"{name} is unfinished ({run.stop_reason}): its numbers cover only the part it has run.")
            if not run.config:
                said.append(f"{name} has no readable config.yaml: its settings are not compared.")
            if not len(run.progress.get("steps", ())):
                said.append(f"{name} has no progress.csv: it has no curves.")
            if run.supply is not None and (shortage := run.supply.shortage()):
                slower = "got less CPU than it asked for, so it was slower than on an idle machine"
                said.append(f"{name} {slower}: {shortage}.")
        seeds = [run.seed for run in side.runs]
        if many and len(set(seeds)) < len(seeds):
            shown = ", ".join(map(str, seeds))
            said.append(f"{side.name} has a seed more than once ({shown}): its intervals are too narrow.")
        if many and side.num_workers is None:
            workers = ", ".join(str(run.num_workers) for run in side.runs)
            said.append(f"{side.name} has runs with different numbers of workers ({workers}).")
    return tuple(said)


def _values_by_side(difference: Difference, sides: Sequence[Side]) -> str:
    """The values with the names of their sides; the most common value comes last, as "in the others"."""
    if len(sides) == 2:
        return " against ".join(difference.values)
    usual, count = Counter(difference.values).most_common(1)[0]
    named = zip(difference.values, sides, strict=True)
    parts = [f"{value} in {side.name}" for value, side in named if value != usual or count == 1]
    return ", ".join([*parts, f"{usual} in the others"] if count > 1 else parts)


def machine(run: RunResult) -> str | None:
    """CPU model and number of cores as text; None if the run has not recorded them."""
    cpu, cores = run.machine.get("cpu"), run.machine.get("cores")
    if not isinstance(cpu, str) or not isinstance(cores, dict):
        return None
    allowed = cores.get("affinity")
    count = len(allowed) if isinstance(allowed, list) else cores.get("logical")
    quota = cores.get("quota")
    return f"{cpu}, {count} cores" + (f" (quota {quota:g})" if isinstance(quota, int | float) else "")


def _facts(run: RunResult, *, training: bool = True) -> dict[str, tuple[DifferenceKind, str]]:
    """Settings and properties of a run that are compared, by name; unknown ones are left out."""
    facts: dict[str, tuple[DifferenceKind, str]] = {}

    def add(name: str, value: Any, kind: DifferenceKind) -> None:
        facts[name] = (kind, _show(value))

    for name, given, kind in (
        ("env", run.env, DifferenceKind.TASK),
        ("algo", run.algo, DifferenceKind.SETTINGS),
        ("n_envs", run.n_envs, DifferenceKind.SETTINGS),
        ("group_size", run.group_size, DifferenceKind.SETTINGS),
        ("machine", machine(run), DifferenceKind.MACHINE),
    ):
        if given is not None:
            add(name, given, kind)
    for name, value in run.section("env").items():
        if name not in _ENV_NOT_COMPARED:
            add(name, value, _ENV.get(name, DifferenceKind.SETTINGS))
    for name, value in {**(run.section("training") if training else {}), **run.section("policy")}.items():
        add(name, value, DifferenceKind.SETTINGS)
    for name, value in run.section("run").items():
        if name in _RUN:
            add(name, _seconds(value) if name == "duration" else value, _RUN[name])
    versions = section_of(run.machine, "versions")
    for package in _PACKAGES:
        if package in versions:
            add(f"{package} version", versions[package], DifferenceKind.DETAIL)
    return facts


def _seconds(value: Any) -> Any:
    """Normalise a duration to seconds, so that 1m equals 60s; other values are returned unchanged."""
    try:
        return value if value is None or isinstance(value, bool) else f"{duration_s(value):g} s"
    except ConfigError:
        return value


def _show(value: Any) -> str:
    if value is None or (isinstance(value, dict | list | tuple) and not value):
        return "none"
    if isinstance(value, dict):
        return " ".join(f"{key}={_show(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(_show(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
