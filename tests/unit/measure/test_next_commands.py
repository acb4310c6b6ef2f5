"""The commands after a run: that a shell reads them as meant, and which budget they raise."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace

import pytest
from tests.unit.measure.iterations import INFO, SUMMARY

from paceline.measure.next_commands import next_commands, nothing_to_do, resume_command
from paceline.measure.record import Goal, RunInfo, Summary

STEPS = Goal(steps=4_000)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")


def commands(summary: Summary, info: RunInfo, goal: Goal = STEPS) -> list[list[str]]:
    return [shlex.split(line) for line in next_commands(summary, info, goal)[1:]]


@pytest.mark.usefixtures("installed")
def test_a_finished_run_can_be_resumed_with_twice_its_budget_evaluated_and_plotted() -> None:
    folder = "runs/my run's"
    assert commands(SUMMARY, replace(INFO, folder=folder)) == [
        ["paceline", "train", "ppo", "--resume", folder, "--total-timesteps", "8000"],
        ["paceline", "eval", folder],
        ["tensorboard", "--logdir", folder],
    ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("reason", "flags"),
    [
        ("total_episodes", ["--total-episodes", "100"]),
        ("duration", ["--duration", "180s"]),
        ("callback StopAtScore", []),
        ("SIGINT", []),
    ],
)
def test_only_a_spent_budget_is_raised(reason: str, flags: list[str]) -> None:
    ended = replace(SUMMARY, stop_reason=reason, finished=reason != "SIGINT")
    resume, *_ = commands(ended, INFO, Goal(steps=4_000, episodes=50, seconds=90.0))
    assert resume == ["paceline", "train", "ppo", "--resume", "runs/[red]x", *flags]


@pytest.mark.usefixtures("installed")
def test_no_command_is_shown_that_could_not_work() -> None:
    assert not commands(SUMMARY, replace(INFO, folder=None))
    assert not commands(replace(SUMMARY, finished=False, stop_reason="WorkerError"), INFO)
    assert [words[0] for words in commands(SUMMARY, replace(INFO, resumable=False))] == ["tensorboard"]


def test_a_program_that_is_not_on_the_path_is_called_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert shlex.split(resume_command("dqn", "runs/x")) == [
        sys.executable, "-m", "paceline", "train", "dqn", "--resume", "runs/x",
    ]  # fmt: skip
    assert commands(SUMMARY, INFO)[-1] == [sys.executable, "-m", "tensorboard.main", "--logdir", "runs/[red]x"]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("total_timesteps", "4,000 steps already, and its budget --total-timesteps is 3,000. Raise --total-timesteps."),
        ("total_episodes", "40 episodes already, and its budget --total-episodes is 30. Raise --total-episodes."),
        ("duration", "2 seconds already, and its budget --duration is 1 s. Raise --duration."),
    ],
)
def test_a_resumed_run_without_anything_to_do_says_which_budget_is_spent(reason: str, said: str) -> None:
    ended, goal = replace(SUMMARY, stop_reason=reason), Goal(steps=3_000, episodes=30, seconds=1.0)
    (line,) = nothing_to_do(ended, replace(INFO, resumed_steps=4_000), goal)
    assert line == f"nothing to do: this run has {said}"
    assert not nothing_to_do(ended, INFO, goal), "a new run"
    assert not nothing_to_do(ended, replace(INFO, resumed_steps=3_999), goal), "it has trained"
    assert not nothing_to_do(replace(ended, stop_reason="SIGINT"), replace(INFO, resumed_steps=4_000), goal)
