"""The rows of the workers on the live panel: how each spends its time, and its CPU and memory usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from paceline.measure.record import Iteration
from paceline.measure.view import COLOURS

SHOWN = 8
"""Workers with a row of their own; the others share one."""
BAR_WIDTH = 16


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


def rows(found: Sequence[Activity]) -> list[tuple[str, Text]]:
    """Return name and text of the rows: one for each of the first workers, and one for the mean of all others."""
    lines = [(f"{i}", _line(one)) for i, one in enumerate(found[:SHOWN])]
    if rest := found[SHOWN:]:
        line = _line(_mean(rest))
        line.append(f"   mean of {len(rest)} more", style="dim")
        lines.append((f"{SHOWN}-{len(found) - 1}", line))
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


def _line(one: Activity) -> Text:
    shares = {"env": one.env, "inference": one.inference, "learn": one.learn, "idle": one.idle}
    text = stack(shares, BAR_WIDTH)
    text.append("   ")
    for name, share in shares.items():
        text.append(f"{name} {share:4.0%}  ", style=COLOURS[name] if name != "idle" else "dim")
    if one.cpu_percent is not None:
        text.append(f" {one.cpu_percent:3.0f} % cpu")
    if one.memory_mb is not None:
        text.append(f"  {one.memory_mb:5,.0f} MB PSS")
    return text
