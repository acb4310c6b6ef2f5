from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError, MissingExtra
from paceline.measure.folder import OWN_NAMES, RunFolder
from paceline.measure.record import TAGS, Iteration
from paceline.measure.tracking import Tracking, require_wandb


class FakeRun:
    """A stand-in for a run of wandb, which stores what is logged."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.logged: list[tuple[dict[str, float], int]] = []
        self.summary: dict[str, Any] = {}
        self.finished = False

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((values, step))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """A stand-in for the wandb package; returns the runs that were started."""
    begun: list[FakeRun] = []
    module = types.ModuleType("wandb")

    def init(**settings: Any) -> FakeRun:
        begun.append(FakeRun(**settings))
        return begun[-1]

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return begun


def iteration(**changes: Any) -> Iteration:
    whole: dict[str, Any] = {
        "iteration": 1, "steps": 4096, "episodes": 3, "wall_s": 1.0, "training_s": 1.0, "iteration_steps": 4096,
        "iteration_episodes": 3, "iteration_s": 0.5, "ep_rew_mean": 9.0, "ep_len_mean": 9.0, "train": {"loss": 0.25},
    }  # fmt: skip
    return Iteration(**{**whole, **changes})


def test_logs_the_tags_of_tensorboard_at_the_steps_of_the_run(runs: list[FakeRun]) -> None:
    tracking = Tracking({"env": {"env": "CartPole-v1"}})
    tracking(iteration())
    tracking.close()
    (run,) = runs
    assert run.settings["config"] == {"env": {"env": "CartPole-v1"}}
    assert run.settings["project"] == "paceline"
    ((values, step),) = run.logged
    assert step == 4096
    assert values["train/loss"] == 0.25
    assert values == iteration().scalars()
    assert set(values) <= set(TAGS)
    assert run.finished


def test_a_resumed_run_continues_the_same_wandb_run(
    runs: list[FakeRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for name in ("a", "a", "b"):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir(exist_ok=True)
        Tracking({}, folder)
    first, again, other = runs
    assert first.settings["id"] == again.settings["id"] != other.settings["id"]
    assert first.settings["resume"] == "allow"
    assert [run.settings["name"] for run in runs] == ["a", "a", "b"]
    assert first.settings["project"] == "mine"
    assert {path.name for path in (tmp_path / "a").iterdir()} <= set(OWN_NAMES)  # `overwrite` removes it


def test_an_error_of_wandb_at_the_start_gives_advice(runs: list[FakeRun], monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise RuntimeError("api_key not configured")

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    with pytest.raises(ConfigError, match=r"RuntimeError: api_key not configured.*WANDB_MODE=offline"):
        Tracking({})


def test_without_wandb_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'paceline\[wandb\]'"):
        require_wandb()
