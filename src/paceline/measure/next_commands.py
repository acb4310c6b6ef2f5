"""The commands that a user may want after a run: train further, evaluate, look at curves. Quoted for a POSIX shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from paceline.measure.record import Goal, RunInfo, Summary

BUDGETS = {"total_timesteps": "--total-timesteps", "total_episodes": "--total-episodes", "duration": "--duration"}
"""The flag of each budget, by the stop reason of a run that has spent it."""


def next_commands(summary: Summary, info: RunInfo, goal: Goal) -> list[str]:
    """Return the commands, a line each, under a heading; no lines for a run without a folder, or one that failed.

    Args:
        summary: How the run ended.
        info: Its settings.
        goal: Its budgets. The command to train further doubles the one that is spent.
    """
    if info.folder is None or summary.failed:
        return []
    commands = [_command("tensorboard", "tensorboard.main", "--logdir", info.folder)]
    if info.resumable:
        resume = resume_command(info.algo, info.folder, *_doubled(summary, goal))
        commands = [resume, _command("paceline", "paceline", "eval", info.folder), *commands]
    return ["train further, evaluate, or look at the curves:", *(f"  {command}" for command in commands)]


def resume_command(algo: str, folder: str | Path, *flags: str) -> str:
    """Return the command that resumes the run in a folder."""
    return _command("paceline", "paceline", "train", algo, "--resume", str(folder), *flags)


def nothing_to_do(summary: Summary, info: RunInfo, goal: Goal) -> list[str]:
    """Return a line that says why a resumed run ended without training; empty if it has trained."""
    flag = BUDGETS.get(summary.stop_reason)
    if not info.resumed_steps or summary.steps != info.resumed_steps or flag is None:
        return []
    done, budget = {
        "total_timesteps": (f"{summary.steps:,} steps", f"{goal.steps or 0:,}"),
        "total_episodes": (f"{summary.episodes:,} episodes", f"{goal.episodes or 0:,}"),
        "duration": (f"{summary.wall_s:,.0f} seconds", f"{goal.seconds or 0:,.0f} s"),
    }[summary.stop_reason]
    return [f"nothing to do: this run has {done} already, and its budget {flag} is {budget}. Raise {flag}."]


def _doubled(summary: Summary, goal: Goal) -> list[str]:
    """Return a flag with twice the budget that the run has spent; empty if it ended for another reason."""
    budgets = {"total_timesteps": goal.steps, "total_episodes": goal.episodes, "duration": goal.seconds}
    budget = budgets.get(summary.stop_reason)
    if budget is None:
        return []
    return [BUDGETS[summary.stop_reason], f"{2 * budget:g}s" if summary.stop_reason == "duration" else f"{2 * budget}"]


def _command(program: str, module: str, *words: str) -> str:
    """Return a quoted command line: of the program, or of its module if the program is not on the PATH."""
    return shlex.join([*([program] if shutil.which(program) else [sys.executable, "-m", module]), *words])
