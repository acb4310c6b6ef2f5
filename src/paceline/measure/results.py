"""What a run folder says of its run, finished or not."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from paceline.errors import ConfigError
from paceline.measure.folder import CONFIG, LAYOUT, PROGRESS, SUMMARY
from paceline.measure.record import PHASES, PROGRESS_HEADER

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """A run as its folder tells it. None is what the folder does not know."""

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
    fps: float
    final_eval: float | None
    best_eval: float | None
    mean_return: float | None
    """Of the last 100 episodes."""
    peak_memory_mb: float | None
    phases: Mapping[str, float]
    """Seconds by phase."""
    restarts: int | None


def read_run(folder: str | Path) -> RunResult:
    """Read a run's summary.json, or what its progress.csv shows where the run has not ended.

    Raises:
        ConfigError: There is no run, or one of its files is damaged; the file is named.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"run {str(path)!r}: no such folder. Name the folder of a run, e.g. one under runs/.")
    if (path / SUMMARY).exists():
        return _from_summary(path)
    if (path / PROGRESS).exists():
        return _from_progress(path)
    raise ConfigError(
        f"run {str(path)!r}: neither {SUMMARY} nor {PROGRESS} is there. Name the folder of a run, e.g. one under runs/."
    )


def read_progress(folder: str | Path) -> list[dict[str, float]]:
    """The rows of progress.csv as numbers, by column; empty cells are left out.

    Raises:
        ConfigError: The file is missing or damaged; file and line are named.
    """
    path = Path(folder) / PROGRESS
    text = _read(path)
    whole = text[: text.rfind("\n") + 1]  # a run that goes on, or was killed, may leave half a line
    lines = csv.reader(whole.splitlines())
    header = next(lines, [])
    if tuple(header[: len(PROGRESS_HEADER)]) != PROGRESS_HEADER:
        raise ConfigError(f"{path}: damaged, its first line names no columns of a run. Compare another run.")
    rows = []
    for cells in lines:
        try:
            rows.append({name: float(cell) for name, cell in zip(header, cells, strict=True) if cell})
        except ValueError:
            raise ConfigError(
                f"{path}, line {lines.line_num}: damaged, not a row of numbers. Remove the line."
            ) from None
    return rows


def _from_summary(path: Path) -> RunResult:
    file = path / SUMMARY
    try:
        content = json.loads(_read(file))
    except ValueError as error:
        raise ConfigError(f"{file}: damaged, not JSON ({error}). Remove it to read {PROGRESS} instead.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: damaged, not a mapping. Remove it to read {PROGRESS} instead.")

    def get(key: str, kind: type[Any], *, within: Mapping[str, Any] = content) -> Any:
        value = within.get(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if value is not None and not isinstance(value, kind):
            raise ConfigError(f"{file}: damaged, {key} is {value!r}. Remove the file to read {PROGRESS} instead.")
        return value

    def need(key: str, kind: type[Any]) -> Any:
        if (value := get(key, kind)) is None:
            raise ConfigError(f"{file}: damaged, {key} is missing. Remove the file to read {PROGRESS} instead.")
        return value

    phases = get("phases", dict) or {}
    return RunResult(
        path=path,
        finished=get("finished", bool) is True,
        stop_reason=get("stop_reason", str) or "unknown",
        algo=get("algo", str),
        env=get("env", str),
        seed=get("seed", int),
        n_envs=get("n_envs", int),
        num_workers=get("num_workers", int),
        steps=need("steps", int),
        episodes=need("episodes", int),
        wall_s=need("wall_s", float),
        fps=need("fps", float),
        final_eval=get("mean_reward", float, within=get("final_eval", dict) or {}),
        best_eval=get("mean_reward", float, within=get("best_eval", dict) or {}),
        mean_return=_last_return(path),
        peak_memory_mb=get("peak_memory_mb", float),
        phases={name: get(name, float, within=phases) or 0.0 for name in phases},
        restarts=get("restarts", int),
    )


def _from_progress(path: Path) -> RunResult:
    rows = read_progress(path)
    if not rows:
        raise ConfigError(f"{path / PROGRESS}: empty, the run has not ended an iteration. Let it run on.")
    last = rows[-1]
    wall_s = last.get("time/time_elapsed", 0.0)
    steps = int(last["steps"])
    evaluations = [row["eval/mean_reward"] for row in rows if "eval/mean_reward" in row]
    phases = {name: sum(row.get(f"time/{name}_s", 0.0) for row in rows) for name in PHASES}
    config, layout = _yaml(path / CONFIG), _yaml(path / LAYOUT)
    workers = layout.get("num_workers", _section(config, "parallel").get("num_workers"))
    return RunResult(
        path=path,
        finished=False,
        stop_reason=f"no {SUMMARY}",
        algo=_if(str, _section(config, "run").get("algo")),
        env=_if(str, _section(config, "env").get("env")),
        seed=_if(int, _section(config, "run").get("seed")),
        n_envs=_if(int, _section(config, "env").get("n_envs")),
        num_workers=_if(int, workers),
        steps=steps,
        episodes=int(last["episodes"]),
        wall_s=wall_s,
        fps=steps / wall_s if wall_s > 0 else 0.0,
        final_eval=evaluations[-1] if evaluations else None,
        best_eval=max(evaluations, default=None),
        mean_return=last.get("rollout/ep_rew_mean"),
        peak_memory_mb=max((row["system/rss_mb"] for row in rows if "system/rss_mb" in row), default=None),
        phases=phases,
        restarts=_whole(last.get("parallel/worker_restarts")),
    )


def _last_return(path: Path) -> float | None:
    """From progress.csv, which a finished run may have lost without harm."""
    try:
        rows = read_progress(path)
    except ConfigError:
        return None
    return rows[-1].get("rollout/ep_rew_mean") if rows else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{path}: cannot be read ({reason}). Compare another run.") from None


def _yaml(path: Path) -> Mapping[str, Any]:
    """A mapping from a YAML or JSON file, empty where there is none: names are a help, not a need."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _if(kind: type[_T], value: Any) -> _T | None:
    return value if isinstance(value, kind) else None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) else None
