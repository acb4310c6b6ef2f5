"""Formats the progress of a run as text: first and last lines, log lines, bar and live panel. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from paceline.measure import worker_rows
from paceline.measure.limit import limited_by
from paceline.measure.next_commands import nothing_to_do
from paceline.measure.record import Goal, RunInfo, Summary
from paceline.measure.statistic import written
from paceline.measure.view import COLOURS, View, activity_shares, phase_shares

SPARKS = "▁▂▃▄▅▆▇█"
LABEL = 9
"""Width of the column of names."""
LINE_BAR_WIDTH = 30
"""Width of the bar of `learn(progress_bar=True)`, where the line has room for it."""
SILENT_S = 10.0
"""After this long without an update, the panel shows the time since the last one."""


def first_lines(info: RunInfo) -> list[str]:
    """Return the first lines of a run: algorithm, env, workers, learner, seed and folder."""
    groups = info.n_envs // max(1, info.group_size)
    if info.num_workers:
        threads = plural(info.worker_threads, "thread")
        who = f"{plural(info.num_workers, 'worker')} ({info.start_method}, {threads} each)"
        if info.nodes is not None:
            who += f" on {plural(info.nodes, 'node')} of a Ray cluster"
    else:
        who = "sequential, in this process"
    envs = f"{plural(info.n_envs, 'env')} in {plural(groups, 'group')} of {info.group_size}"
    learner = f"learner on {info.device}, {plural(info.learner_threads, 'thread')}"
    lines = [f"{info.algo} on {info.env}: {envs}, {who}, {learner}, seed {info.seed}"]
    if info.resumed_steps:
        lines.append(f"resumed at step {info.resumed_steps:,}")
    if info.folder:
        lines.append(f"run folder: {info.folder}")
    return lines


def last_lines(summary: Summary, info: RunInfo, goal: Goal) -> list[str]:
    """Return the last lines of a run: result, time per phase, memory, replaced workers and folder."""
    parts = [
        f"{'finished' if summary.finished else 'stopped'} ({summary.stop_reason}): {summary.steps:,} steps and "
        f"{summary.episodes:,} episodes in {duration(summary.wall_s)}, {summary.fps:,.0f} steps/s, "
        f"{rate(summary.episodes_per_s)} episodes/s"
    ]
    if summary.final_eval is not None:
        parts.append(f"evaluation {number(summary.final_eval.mean_reward)}")
    if summary.best_eval is not None and summary.best_eval != summary.final_eval:
        parts.append(f"best {number(summary.best_eval.mean_reward)}")
    shares = phase_shares([summary.phases], summary.wall_s)
    lines = [*nothing_to_do(summary, info, goal), ", ".join(parts)]
    if statistics := [text for of_task in (True, False) for text in written(summary.statistics, of_task=of_task)]:
        lines.append("at the end: " + ", ".join(statistics))
    if shares:
        lines.append("time: " + shares_text(shares))
    if workers := activity_shares([summary.worker_s]):
        lines.append("workers: " + shares_text(workers))
    if summary.supply is not None and (shortage := summary.supply.shortage()):
        lines.append(f"too little CPU to tell what limits this run: {shortage}")
    elif limit := limited_by(shares, workers):
        lines.append(f"limited by {limit}")
    if summary.worker_peak_mb:
        least, most = min(summary.worker_peak_mb), max(summary.worker_peak_mb)
        lines.append(f"peak memory of a worker: {least:,.0f} to {most:,.0f} MB (PSS)")
    if summary.restarts:
        broken = f" ({plural(summary.restarted, 'episode')} broken off)" if summary.restarted else ""
        lines.append(f"workers replaced: {summary.restarts}{broken}")
    if info.folder:
        lines.append(f"run folder: {info.folder}")
    return lines


def plain_line(view: View) -> str:
    """Return the state as one line for a log; it starts with the unit of the budget that ends the run first."""
    newest = view.newest
    if newest is None:
        return f"[{duration(view.wall_s)}] {_first_rollout(view)} | {plural(view.info.n_envs, 'env')}"
    parts = [] if view.by_episodes else [_amount(view)]
    parts.append(f"episode {view.episodes:,}" + (f"/{view.goal.episodes:,}" if view.goal.episodes else ""))
    if newest.last_return is not None:
        parts.append(f"reward {number(newest.last_return)}")
        parts.append(f"length {newest.last_length:,}")
    if newest.ep_rew_mean is not None:
        parts.append(f"mean(100) {number(newest.ep_rew_mean)}")
    parts.append(f"{plural(newest.iteration_episodes, 'episode')} in this rollout")
    parts.append(plural(view.info.n_envs, "env"))
    if view.fps is not None:
        parts.append(f"{view.fps:,.0f} steps/s")
        parts.append(f"{rate(view.episodes_per_s or 0.0)} episodes/s")
    if lag := _lag(view):
        parts.append(lag)
    statistics = view.statistics
    parts += [*written(statistics, of_task=True), *written(statistics, of_task=False)]
    if view.last_eval is not None:
        parts.append(f"eval {number(view.last_eval.mean_reward)}")
    if shares := view.shares:
        parts.append(shares_text(shares))
    if workers := view.worker_shares:
        parts.append(f"workers: {shares_text(workers)}")
    if view.left_s is not None:
        parts.append(f"{duration(view.left_s)} left")
    return f"[{duration(view.wall_s)}] " + " | ".join(parts)


def bar_line(view: View, width: int) -> Text:
    """Return the progress bar of `learn(progress_bar=True)`: one line, at most `width` wide."""
    if view.newest is None:
        return _starting(view, width)
    parts = [f"{view.fraction:4.0%}", _amount(view, of="/")]
    time = duration(view.wall_s)
    parts.append(time if view.left_s is None else f"{time}, {duration(view.left_s)} left")
    if view.fps is not None:
        parts.append(f"{view.fps:,.0f} steps/s")
    if view.newest.ep_rew_mean is not None:
        parts.append(f"return {number(view.newest.ep_rew_mean)}")
    tail = "  ".join(parts)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(bar(view.fraction, max(8, min(LINE_BAR_WIDTH, width - len(tail) - 1))))
    line.append(f" {tail}")
    line.truncate(width, overflow="ellipsis")
    return line


def panel(view: View, width: int) -> RenderableType:
    """Return the live panel, at most `width` wide."""
    if view.newest is None:
        return _starting(view, width)
    newest = view.newest
    rows: list[tuple[str, Text | str]] = []

    left = "" if view.left_s is None else f", {duration(view.left_s)} left"
    tail = f"  {view.fraction:4.0%}  {_amount(view)}  {duration(view.wall_s)}{left}"
    bar_width = max(8, min(40, width - LABEL - len(tail)))
    rows.append(("run", Text.assemble(bar(view.fraction, bar_width), tail)))

    rates = f" steps/s   {rate(view.episodes_per_s or 0.0)} episodes/s   {plural(newest.iteration, 'iteration')}"
    if (updates := newest.train.get("n_updates")) is not None:
        rates += f"   {plural(int(updates), 'update')}"
    if lag := _lag(view):
        rates += f"   {lag}"
    rows.append(("speed", Text.assemble((f"{view.fps or 0:,.0f}", "bold"), rates)))

    returns = Text()
    if newest.ep_rew_mean is None:
        returns.append("no episode has ended yet", style="dim")
    else:
        returns.append(number(newest.ep_rew_mean), style="bold")
        returns.append(" mean of 100   ")
        returns.append(sparkline(view.returns, 24), style="green")
        if newest.ep_len_mean is not None:
            returns.append(f"   length {number(newest.ep_len_mean)}")
    rows.append(("return", returns))
    for name, of_task in (("task", True), ("learning", False)):
        if statistics := written(view.statistics, of_task=of_task):
            rows.append((name, "   ".join(statistics)))
    if view.last_eval is not None and view.best_eval is not None:
        rows.append(("eval", f"{number(view.last_eval.mean_reward)} last   {number(view.best_eval.mean_reward)} best"))

    if shares := view.shares:
        legend = shares_legend(shares)
        bar_width = min(24, width - LABEL - len(legend) - 1)
        stack = worker_rows.stack(shares, bar_width) if bar_width >= worker_rows.LEAST_BAR_WIDTH else Text()
        rows.append(("time", Text.assemble(stack, "   " if len(stack) else "", legend)))
    workers = _workers(view)
    if view.since_s > SILENT_S:
        workers.append(f"   no update for {duration(view.since_s)}, {_collected(view)}", style="yellow")
    if workers:
        rows.append(("workers", workers))
    rows += [(f"  {name}", line) for name, line in worker_rows.rows(worker_rows.activities(view.recent), width - LABEL)]
    return _lines(rows, width)


def _starting(view: View, width: int) -> Text:
    tail = f"{_first_rollout(view)}, {duration(view.wall_s)}"
    line, bar_width = Text(no_wrap=True, overflow="ellipsis"), min(LINE_BAR_WIDTH, width - len(tail) - 1)
    if view.info.rollout_steps and view.collected and bar_width > 0:
        line.append(bar(min(1.0, view.collected / view.info.rollout_steps), bar_width))
        line.append(" ")
    line.append(tail, style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _first_rollout(view: View) -> str:
    return f"first rollout: {_collected(view)}" if view.collected else "starting"


def _collected(view: View) -> str:
    """Return how much of the rollout is collected, as text."""
    total = view.info.rollout_steps
    of = f" of {total:,}" if total is not None and view.collected <= total else ""
    return f"{view.collected:,}{of} steps collected"


def _lines(rows: Sequence[tuple[str, Text | str]], width: int) -> Group:
    """Return rows with a name each. Takes less than half the time of a rich table."""
    lines = []
    for name, content in rows:
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        line.append(name.ljust(LABEL), style="dim")
        line.append(content)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Group(Text("\n", end="").join(lines))


def bar(fraction: float, width: int) -> Text:
    """Return a progress bar with a resolution of half a character."""
    halves = round(fraction * width * 2)
    full, half = divmod(halves, 2)
    text = Text()
    text.append("━" * full, style="cyan")
    if half:
        text.append("╸", style="cyan")
    text.append("━" * (width - full - half), style="grey23")
    return text


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a chart of `width` characters, scaled from the lowest to the highest value."""
    width = min(width, len(values))
    picked = [values[round(i * (len(values) - 1) / max(1, width - 1))] for i in range(width)]
    picked = [v for v in picked if math.isfinite(v)]
    if len(picked) < 2:
        return ""
    low, high = min(picked), max(picked)
    if high <= low:
        return SPARKS[0] * len(picked)
    return "".join(SPARKS[min(7, int(8 * (v - low) / (high - low)))] for v in picked)


def shares_legend(shares: Mapping[str, float]) -> Text:
    """Return names and percentages of the shares in their colours, without those that round to 0 %."""
    text = Text()
    for name, share in shares.items():
        if share >= 0.005:
            text.append(f"{name} {share:.0%}  ", style=COLOURS.get(name, "blue"))
    return text


def shares_text(shares: Mapping[str, float]) -> str:
    """Return names and percentages of the shares without colour, without those that round to 0 %."""
    return " ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def duration(seconds: float) -> str:
    """Return a duration such as 2:05 or 1:02:05."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def number(value: float) -> str:
    """Format a reward: one decimal if it is large, three significant digits if it is small."""
    return f"{value:,.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def rate(value: float) -> str:
    """Format a number per second: without decimals if it is large, three significant digits if it is small."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 worker, 2 workers."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _amount(view: View, of: str = " / ") -> str:
    """Return the progress in the unit of the budget that ends the run first; `of` stands before the budget."""
    done, goal, unit = view.steps, view.goal.steps, "steps"
    if view.by_episodes:
        done, goal, unit = view.episodes, view.goal.episodes, "episodes"
    return f"{done:,}{of}{goal:,} {unit}" if goal else f"{done:,} {unit}"


def _lag(view: View) -> str:
    """Return the policy lag as text; empty without lag."""
    parallel = view.newest.parallel if view.newest else {}
    worst = parallel.get("policy_lag_max", 0.0)
    return f"lag {parallel.get('policy_lag_mean', 0.0):.2g} (max {worst:.0f})" if worst > 0 else ""


def _workers(view: View) -> Text:
    text = Text()
    parallel = view.newest.parallel if view.newest else {}
    if view.info.num_workers:
        alive = int(parallel.get("workers_alive", view.info.num_workers))
        text.append(f"{alive} of {view.info.num_workers}", style="red" if alive < view.info.num_workers else "default")
        if shares := view.worker_shares:
            text.append(f"   idle {shares.get('idle', 0.0):.0%}")
        if restarts := int(parallel.get("worker_restarts", 0)):
            text.append(f"   {plural(restarts, 'restart')}", style="yellow")
    else:
        text.append("none (sequential)")
    if view.newest and "pss_mb" in view.newest.system:
        text.append(f"   {view.newest.system['cpu_percent']:.0f} % cpu   {view.newest.system['pss_mb']:,.0f} MB PSS")
    return text
