"""Reports a search over workflows: search.txt (text) and search.png (two plots)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.domains.cyber.gp_ucb import Belief
from paceline.domains.cyber.search import INDEX, Search
from paceline.domains.cyber.trials import PICTURE, TEXT, Trial
from paceline.domains.cyber.workflow import WORKFLOWS, read_workflow, workflow_name
from paceline.insight.runs.picture import LIGHT
from paceline.insight.runs.plots import FAINT, frame, png
from paceline.measure.folder import write_atomic
from paceline.measure.panel import duration, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 10
DRIFTS = 0.6
"""Rank correlation of reward and trial number above which the report has a warning."""
WIDTH, HEIGHT = 12.0, 5.2


def write_report(search: Search) -> None:
    """Replace search.txt and search.png."""
    belief = search.belief()
    write_atomic(search.folder / TEXT, report(search, belief))
    write_atomic(search.folder / PICTURE, picture(search, belief))


def report(search: Search, belief: Belief | None) -> str:
    """The summary as text."""
    if not search.trials:
        return "nothing has been tried yet\n"
    lines = [
        f"{plural(len(search.trials), 'workflow')} of {len(WORKFLOWS)} tried, {search.episodes:,} episodes, "
        f"{duration(search.wall_s)} of training",
        *_best(search.leaders, len(search.trials)),
        "",
        f"{'':>3}  {'reward':>9}  {'compliance':>10}  {'episodes':>8}  {'ended by':<14}  workflow",
    ]
    if (drift := search.drift) is not None and drift > DRIFTS:
        lines[-2:-2] = [
            f"warning: rewards grow with the trial number (rank correlation {drift:.2f}). Later workflows had "
            "more training,",
            "so the rewards hardly show which workflow is better. Use --no-warm-start, with --init-from RUN to give "
            "all the same initial weights, or more --workflow-episodes.",
        ]
    ranked = sorted(search.trials, key=lambda trial: -trial.reward)
    lines += [_line(trial) for trial in ranked[:SHOWN]]
    if len(ranked) > SHOWN:
        lines.append(f"     and {len(ranked) - SHOWN} more in search.csv")
    taken = {trial.workflow for trial in search.trials}
    if belief is not None and len(taken) < len(WORKFLOWS):
        lines += ["", "not tried yet, with the highest expected reward:"]
        names = [(int(i), workflow_name(WORKFLOWS[i])) for i in np.argsort(-belief.mean, kind="stable")]
        untried = [(i, name) for i, name in names if name not in taken][: SHOWN // 2]
        lines += [f"     {belief.mean[i]:9.2f} ± {belief.std[i]:.2f}  {name}" for i, name in untried]
    return "\n".join(lines) + "\n"


def _best(leaders: Sequence[Trial], tried: int) -> list[str]:
    """The best workflow, or a warning that there is none because the highest rewards are equal."""
    best = leaders[0]
    if len(leaders) == 1:
        return [f"best: {best.workflow}, reward {best.reward:.2f}, compliance {_share(best.compliance)}"]
    return [
        f"best: {len(leaders)} of {plural(tried, 'workflow')} tie with the highest reward, {best.reward:.2f}",
        "warning: this search does not show which of them is better. Agents with little training may all take the same",
        "action in the evaluation, and then have equal rewards. Train longer (--workflow-episodes, "
        "--compliance-threshold), or use",
        "more --n-eval-episodes.",
    ]


def _line(trial: Trial) -> str:
    ended = "compliance" if trial.complied else trial.stop_reason
    return (
        f"{trial.number:>3}  {trial.reward:>9.2f}  {_share(trial.compliance):>10}  {trial.episodes:>8,}  {ended:<14}  "
        f"{trial.workflow}"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def picture(search: Search, belief: Belief | None) -> bytes:
    """Draw rewards by trial, and the predicted reward of every workflow; returns the bytes of a PNG file."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        figure.subplots_adjust(left=0.07, right=0.98, bottom=0.12, top=0.84, wspace=0.18)
        _draw_trials(left, search)
        _draw_belief(right, search, belief)

    return png(WIDTH, HEIGHT, "search over workflows", draw)


def _draw_trials(axes: Axes, search: Search) -> None:
    trials = search.trials
    frame(
        axes,
        "Reward of each trial",
        "line: best so far; hollow: budget spent before the threshold was reached",
        "trial",
    )
    numbers = [trial.number for trial in trials]
    rewards = [trial.reward for trial in trials]
    axes.step(numbers, np.maximum.accumulate(rewards), where="post", color=LIGHT[0], lw=1.7)
    for trial in trials:
        face = LIGHT[1] if trial.complied else "white"
        axes.plot([trial.number], [trial.reward], "o", color=LIGHT[1], mfc=face, ms=6, zorder=3)


def _draw_belief(axes: Axes, search: Search, belief: Belief | None) -> None:
    frame(
        axes,
        "Predicted reward of all workflows",
        "from highest to lowest, with one standard deviation; dots: measured rewards",
        "rank",
    )
    if belief is None:
        axes.text(0.5, 0.5, "not enough tried yet", transform=axes.transAxes, ha="center", color=FAINT)
        return
    order = np.argsort(-belief.mean, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    mean, std = belief.mean[order], belief.std[order]
    axes.fill_between(ranks, mean - std, mean + std, color=LIGHT[0], alpha=0.18, lw=0)
    axes.plot(ranks, mean, color=LIGHT[0], lw=1.7)
    measured = np.argsort(order)[[INDEX[read_workflow(trial.workflow)] for trial in search.trials]] + 1
    axes.plot(
        measured, [trial.reward for trial in search.trials], "o", color=LIGHT[1], ms=5, mec="white", mew=0.8, zorder=3
    )
