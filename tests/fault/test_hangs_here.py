"""Envs that hang in the driver process, where there is no worker to replace: in evaluations and in trials."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fault.modes import FAULT, SEED, config

from paceline import cli
from paceline.envs.fault import FaultEnv
from paceline.errors import EnvHung
from paceline.measure.record import Summary
from paceline.train import evaluate
from paceline.train.run import Run, open_folder

IN_EVALUATION = {
    "mode": "hang",
    "run_seed": SEED ^ evaluate._EVALUATION,
    "env_index": 0,
    "at_episode": 1,
    "at_step": 3,
}


def go(settings: Any) -> Summary:
    with Run(settings, folder=open_folder(settings) if settings.run.output_dir else None) as run:
        return run.go()


@pytest.mark.parametrize("mode", ["sequential", "parallel", "pipeline", "impala", "a3c", "dqn-async"])
def test_an_evaluation_that_hangs_is_left_out_and_the_run_goes_on(mode: str, tmp_path: Path) -> None:
    kwargs = {**IN_EVALUATION, "once": str(tmp_path / "happened")}
    often = {"eval_freq": 800, "n_eval_episodes": 2}
    found = go(config(mode, env_kwargs=kwargs, **often, env_timeout_s=1.0, output_dir=tmp_path / "run"))
    assert (tmp_path / "happened").exists()
    assert found.finished
    assert found.restarts == 0
    assert found.final_eval is not None, "the last evaluation had an env of its own"
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("evaluation is skipped; the run continues") == 1
    assert f"evaluation on '{FAULT}' (seed {SEED}): no sign of life in `evaluate` for" in log
    assert 'fault.py", line' in log, "its stack"


def test_a_run_whose_every_evaluation_hangs_finishes_without(tmp_path: Path) -> None:
    often = {"eval_freq": 1600, "n_eval_episodes": 2, "env_timeout_s": 0.5}
    found = go(config("parallel", env_kwargs=IN_EVALUATION, **often, output_dir=tmp_path / "run"))
    assert (found.finished, found.final_eval) == (True, None)
    assert (tmp_path / "run" / "train.log").read_text().count("evaluation is skipped") == 1, (
        "not twice at the same step"
    )


def test_paceline_eval_of_an_env_that_hangs_ends_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    go(config("sequential", env_kwargs=IN_EVALUATION, env_timeout_s=0.5, output_dir=tmp_path / "run"))
    with caplog.at_level(logging.ERROR, "paceline"):
        assert cli.main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 1
    assert f"error: evaluation on '{FAULT}' (seed {SEED}): no sign of life in `evaluate`" in capsys.readouterr().err
    assert 'fault.py", line' in caplog.text


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_constructor_that_hangs_here_ends_the_run_by_name(mode: str) -> None:
    def never() -> FaultEnv:
        time.sleep(3600.0)
        return FaultEnv()

    with pytest.raises(EnvHung, match=r"^env .*never.*: no sign of life in `start` for .*--start-timeout-s"):
        go(config(mode, never, start_timeout_s=0.5))


def test_a_second_constructor_that_hangs_here_ends_the_run_by_name() -> None:
    made: list[FaultEnv] = []

    def second() -> FaultEnv:
        if len(made) > 2:
            time.sleep(3600.0)
        made.append(FaultEnv())
        return made[-1]

    with pytest.raises(EnvHung, match=r"^env 2: no sign of life in `start` for .*--num-workers 1"):
        go(config("sequential", second, start_timeout_s=0.5))


def test_an_env_that_hangs_while_the_layout_is_chosen_ends_the_run_by_name() -> None:
    kwargs = {"mode": "hang", "env_index": 0, "at_step": 4}
    with pytest.raises(EnvHung, match=r"^env 0: no sign of life in `collect` for .*--env-timeout-s"):
        go(config("parallel", env_kwargs=kwargs, num_workers="auto", env_timeout_s=0.5))
