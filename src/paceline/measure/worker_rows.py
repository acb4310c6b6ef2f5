"""The rows of the workers on the live panel: how each spends its time, and its CPU and memory usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from paceline.measure.record import Iteration
from paceline.measure.view import COLOURS

SHOWN = 8
"""Workers with a row of their own; the others share one."""
BAR_WIDTH, LEAST_BAR_WIDTH = 16, 4
GAP = "   "
"""Between the bar and the shares."""
NAMES = ("env", "inference", "learn", "idle")
SHARE = len(f" {1.0:4.0%}  ")
"""Width of a share after its name."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Fractions of the recent time of one worker, or their mean over several; with `idle` they add up to one."""

    env: float
    inference: float
    cpu_percent: float | None = None
    memory_mb: float | None = None
    learn: float = 0.0

    @property
    def idle(self) -> float:
        """Fraction of waiting: for the slowest worker, the learner, central inference, or a core."""
        return max(0.0, 1.0 - self.env - self.inference - self.learn)


def activities(recent: Sequence[Iteration]) -> list[Activity]:
    """Return the activity of each worker over some iterations, in worker order."""
    seconds = sum(it.iteration_s for it in recent)
    if not recent or seconds <= 0:
        return []
    count = len(recent[-1].workers)
    same = [it.workers for it in recent if len(it.workers) == count]
    return [
        Activity(
            sum(workers[i].env_s for workers in same) / seconds,
            sum(workers[i].inference_s for workers in same) / seconds,
            newest.cpu_percent,
            newest.memory_mb,
            sum(workers[i].learn_s for workers in same) / seconds,
        )
        for i, newest in enumerate(recent[-1].workers)
    ]


def rows(found: Sequence[Activity], width: int) -> list[tuple[str, Text]]:
    """Return name and text of the rows: one for each of the first workers, and one for the mean of all others.

    In a narrow terminal the bar shrinks first, then shares are left out, the idle one first; CPU and memory stay.

    Args:
        found: The activity of each worker.
        width: Characters that a text may have.
    """
    shown = list(found[:SHOWN])
    if rest := found[SHOWN:]:
        shown.append(_mean(rest))
    names = [name for name in NAMES if name != "learn" or any(one.learn >= 0.005 for one in shown)]
    usages = [_usage(one) for one in shown]
    room = width - max(map(len, usages), default=0)
    while len(names) > 1 and SHARE * len(names) + sum(map(len, names)) > room:
        names.pop()
    bar_width = min(BAR_WIDTH, room - SHARE * len(names) - sum(map(len, names)) - len(GAP))
    lines = [
        (f"{i}", _line(one, names, bar_width, usage)) for i, (one, usage) in enumerate(zip(shown, usages, strict=True))
    ]
    if rest:
        lines[-1][1].append(f"   mean of {len(rest)} more", style="dim")
        lines[-1] = (f"{SHOWN}-{len(found) - 1}", lines[-1][1])
    return lines


def stack(shares: Mapping[str, float], width: int) -> Text:
    """Return a bar with a coloured part for each share, of `width` characters if the shares add up to one."""
    text, done, placed = Text(), 0.0, 0
    for name, share in shares.items():
        done += share
        end = min(width, round(done * width))
        text.append("█" * (end - placed), style=COLOURS.get(name, "blue"))
        placed = end
    return text


def _mean(many: Sequence[Activity]) -> Activity:
    cpu = [one.cpu_percent for one in many if one.cpu_percent is not None]
    memory = [one.memory_mb for one in many if one.memory_mb is not None]
    return Activity(
        sum(one.env for one in many) / len(many),
        sum(one.inference for one in many) / len(many),
        sum(cpu) / len(cpu) if cpu else None,
        sum(memory) / len(memory) if memory else None,
        sum(one.learn for one in many) / len(many),
    )


def _line(one: Activity, names: Sequence[str], bar_width: int, usage: str) -> Text:
    shares = {"env": one.env, "inference": one.inference, "learn": one.learn, "idle": one.idle}
    text = Text()
    if bar_width >= LEAST_BAR_WIDTH:
        text = stack(shares, bar_width)
        text.append(GAP)
    for name in names:
        text.append(f"{name} {shares[name]:4.0%}  ", style=COLOURS[name] if name != "idle" else "dim")
    text.append(usage)
    return text


def _usage(one: Activity) -> str:
    cpu = "" if one.cpu_percent is None else f" {one.cpu_percent:3.0f} % cpu"
    return cpu if one.memory_mb is None else f"{cpu}  {one.memory_mb:5,.0f} MB"
