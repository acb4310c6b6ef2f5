"""Reads the results of a run, finished or not, from its folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import ConfigError
from paceline.insight.runs.columns import (
    Columns,
    known,
    read_columns,
    read_mapping,
    read_text,
    section_of,
    training_seconds,
    typed,
)
from paceline.measure.cpu import CpuSupply
from paceline.measure.folder import COMMAND, CONFIG, LAYOUT, PROGRESS, SUMMARY, SYSTEM_INFO, folders_beside
from paceline.measure.record import ACTIVITIES, PHASES, PROGRESS_HEADER
from paceline.measure.speed import fps_of, per_second


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """Results and settings of a run. None: the run folder does not have this value."""

    path: Path
    finished: bool
    stop_reason: str
    algo: str | None
    env: str | None
    seed: int | None
    n_envs: int | None
    num_workers: int | None
    steps: int
    episodes: int
    wall_s: float
    """Wall-clock seconds since the first step."""
    fps: float
    """Steps divided by the training time (`measure.speed`)."""
    final_eval: float | None
    best_eval: float | None
    mean_return: float | None
    """Mean return of the last 100 training episodes."""
    peak_memory_mb: float | None
    phases: Mapping[str, float]
    """Seconds by phase."""
    worker_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the average worker by activity; empty without workers."""
    restarts: int | None
    """Number of workers that were replaced."""
    group_size: int | None = None
    startup_s: float | None = None
    cpu_percent: float | None = None
    """Mean over the run; 100 is one core."""
    supply: CpuSupply | None = None
    """CPU time that the run got, and that others took; None if it was not recorded."""
    lag_mean: float | None = None
    lag_max: float | None = None
    """Largest policy lag: updates between collecting and learning."""
    dropped_steps: int | None = None
    weights_sha256: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """config.yaml by section; empty if it is missing or unreadable."""
    command: str | None = None
    machine: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """system_info.json; empty if it is missing or unreadable."""
    progress: Columns = field(default_factory=dict, compare=False, repr=False)
    """Columns of progress.csv; empty if the file is missing."""

    @property
    def mode(self) -> str | None:
        """The algorithm as on the command line, e.g. `ppo --pipeline`."""
        return self.algo and self.algo + (" --pipeline" if self.section("training").get("pipeline") is True else "")

    @property
    def episodes_per_s(self) -> float:
        """Episodes divided by the training time."""
        return per_second(self.episodes * self.fps, self.steps)

    def newest(self, tag: str) -> float | None:
        """The newest number of a column of progress.csv; None if there is none."""
        values = known(self.progress.get(tag, np.empty(0)))
        return float(values[-1]) if len(values) else None

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of config.yaml; empty if it is missing."""
        return section_of(self.config, name)


def read_run(folder: str | Path) -> RunResult:
    """Read the results of a run from summary.json, or from progress.csv if the run has not ended.

    Raises:
        ConfigError: The folder is not a run, or one of its files is damaged; names the file.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"run {str(path)!r}: no such folder. {folders_beside(path)}")
    if not (path / SUMMARY).exists() and not (path / PROGRESS).exists():
        raise ConfigError(
            f"run {str(path)!r}: has neither {SUMMARY} nor {PROGRESS}. Give a run folder, such as one under runs/."
        )
    progress = read_columns(path / PROGRESS, PROGRESS_HEADER) if (path / PROGRESS).exists() else {}
    machine = read_mapping(path / SYSTEM_INFO)
    shared: dict[str, Any] = {
        "path": path,
        "cpu_percent": _mean_cpu(progress, "cpu_percent"),
        "supply": _supply(progress, machine),
        "worker_s": _worker_s(progress),
        "mean_return": _last(progress, "rollout/ep_rew_mean"),
        "config": read_mapping(path / CONFIG),
        "command": _line(path / COMMAND),
        "machine": machine,
        "progress": progress,
    }
    if not (path / SUMMARY).exists():
        return _from_progress(path, progress, shared, reason=f"no {SUMMARY}")
    summary = _from_summary(path / SUMMARY, shared)
    if (steps := _last(progress, "steps")) is not None and steps > summary.steps:
        # The summary is from before a resume, and the resumed run has not ended.
        return _from_progress(path, progress, shared, reason=f"{SUMMARY} is older than {PROGRESS}")
    return summary


def _from_summary(file: Path, shared: Mapping[str, Any]) -> RunResult:
    try:
        content = json.loads(read_text(file))
    except ValueError as error:
        raise ConfigError(f"{file}: damaged, not JSON ({error}). Remove it to read {PROGRESS} instead.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: damaged, not a mapping. Remove it to read {PROGRESS} instead.")

    def get(key: str, kind: type[Any], *, within: Mapping[str, Any] = content) -> Any:
        value = within.get(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        if value is not None and (wrong or (kind is float and not math.isfinite(value))):
            raise ConfigError(f"{file}: damaged, {key} is {value!r}. Remove the file to read {PROGRESS} instead.")
        return value

    def need(key: str, kind: type[Any]) -> Any:
        if (value := get(key, kind)) is None:
            raise ConfigError(f"{file}: damaged, {key} is missing. Remove the file to read {PROGRESS} instead.")
        return value

    recorded = get("phases", dict) or {}
    phases = {name: get(name, float, within=recorded) or 0.0 for name in recorded}
    supply = get("supply", dict)
    if supply and shared["supply"] is None:  # the run was too short for samples in progress.csv
        cores, own, others, throttled = (
            get(name, kind, within=supply)
            for name, kind in (("cores", int), ("own", float), ("others", float), ("throttled", float))
        )
        waiting = get("waiting", float, within=supply)
        if None not in (cores, own, others):
            supplied = CpuSupply(cores=cores, own=own, others=others, waiting=waiting, throttled=throttled or 0.0)
            shared = {**shared, "supply": supplied, "cpu_percent": 100 * own}
    steps, wall_s, _ = need("steps", int), need("wall_s", float), need("fps", float)
    return RunResult(
        finished=get("finished", bool) is True,
        stop_reason=get("stop_reason", str) or "unknown",
        algo=get("algo", str),
        env=get("env", str),
        seed=get("seed", int),
        n_envs=get("n_envs", int),
        num_workers=get("num_workers", int),
        group_size=get("group_size", int),
        steps=steps,
        episodes=need("episodes", int),
        wall_s=wall_s,
        startup_s=get("startup_s", float),
        fps=fps_of({**content, "phases": phases}),
        final_eval=get("mean_reward", float, within=get("final_eval", dict) or {}),
        best_eval=get("mean_reward", float, within=get("best_eval", dict) or {}),
        peak_memory_mb=get("peak_memory_mb", float),
        lag_mean=get("mean", float, within=get("lag", dict) or {}),
        lag_max=get("max", float, within=get("lag", dict) or {}),
        dropped_steps=get("dropped_steps", int),
        phases=phases,
        restarts=get("restarts", int),
        weights_sha256=get("weights_sha256", str) or None,
        **shared,
    )


def _from_progress(path: Path, progress: Columns, shared: Mapping[str, Any], *, reason: str) -> RunResult:
    if not len(progress["steps"]):
        raise ConfigError(f"{path / PROGRESS}: empty, the run has not finished an iteration. Wait for the first one.")

    def total(name: str) -> float:
        return float(known(progress[name]).sum()) if name in progress else 0.0

    steps = int(progress["steps"][-1])
    wall_s = _last(progress, "time/time_elapsed") or 0.0
    evaluations = known(progress.get("eval/mean_reward", np.empty(0)))
    memory = known(progress.get("system/pss_mb", np.empty(0)))
    restarts = _last(progress, "parallel/worker_restarts")
    config, layout = shared["config"], read_mapping(path / LAYOUT)
    run, env = section_of(config, "run"), section_of(config, "env")
    return RunResult(
        finished=False,
        stop_reason=reason,
        algo=typed(str, run.get("algo")),
        env=typed(str, env.get("env")),
        seed=typed(int, run.get("seed")),
        n_envs=typed(int, env.get("n_envs")),
        num_workers=typed(int, layout.get("num_workers", section_of(config, "parallel").get("num_workers"))),
        group_size=typed(int, layout.get("group_size")),
        steps=steps,
        episodes=int(progress["episodes"][-1]),
        wall_s=wall_s,
        fps=per_second(steps, float(training_seconds(progress)[-1])) if wall_s else 0.0,
        final_eval=float(evaluations[-1]) if len(evaluations) else None,
        best_eval=float(evaluations.max()) if len(evaluations) else None,
        peak_memory_mb=float(memory.max()) if len(memory) else None,
        phases={name: total(f"time/{name}_s") for name in PHASES},
        restarts=None if restarts is None else int(restarts),
        **shared,
    )


def _worker_s(progress: Columns) -> dict[str, float]:
    """Seconds of the average worker by activity. A run of an earlier version has recorded only when workers idled."""
    tags = {name: f"parallel/worker_{name}_frac" for name in ACTIVITIES if name != "idle"}
    if not {"time/iteration_s", *tags.values()} <= set(progress):
        return {}
    seconds = np.where(np.isfinite(progress[tags["env"]]), progress["time/iteration_s"], 0.0)
    busy = {name: float(np.nan_to_num(progress[tag]) @ seconds) for name, tag in tags.items()}
    return {**busy, "idle": max(0.0, float(seconds.sum()) - sum(busy.values()))} if seconds.any() else {}


def _mean_cpu(progress: Columns, name: str) -> float | None:
    """Mean of a column of CPU use over time. Zeros are left out: the sampler reports 0 until its second sample."""
    column, seconds = progress.get(f"system/{name}"), progress.get("time/iteration_s")
    used = progress.get("system/cpu_percent")
    if column is None or seconds is None or used is None:
        return None
    seen = np.isfinite(column) & (used > 0) & (seconds > 0)
    return float(np.average(column[seen], weights=seconds[seen])) if seen.any() else None


def _supply(progress: Columns, machine: Mapping[str, Any]) -> CpuSupply | None:
    """The CPU time that the run got; None if it was not recorded."""
    own, others = _mean_cpu(progress, "cpu_percent"), _mean_cpu(progress, "cpu_others_percent")
    cores = section_of(machine, "cores").get("affinity")
    if own is None or others is None or not isinstance(cores, list) or not cores:
        return None
    waiting, throttled = _mean_cpu(progress, "cpu_waiting_percent"), _mean_cpu(progress, "cpu_throttled_percent")
    return CpuSupply(
        cores=len(cores),
        own=own / 100,
        others=others / 100,
        waiting=None if waiting is None else waiting / 100,
        throttled=(throttled or 0.0) / 100,
    )


def _last(columns: Columns, name: str) -> float | None:
    values = columns.get(name)
    return float(values[-1]) if values is not None and len(values) and math.isfinite(values[-1]) else None


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None
