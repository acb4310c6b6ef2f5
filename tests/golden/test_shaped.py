"""Extras and shaped rewards: the same run for any worker count, and after an interruption."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.runtime.worker_handle import WorkerHandle
from paceline.train.callbacks import Callbacks, Moment
from paceline.train.run import Run, open_folder

COMMON: dict[str, Any] = {
    "env": "tests.simulator:Simulator",
    "shaper": "tests.simulator:Travelled",
    "shaper_kwargs": {"weight": 0.5},
    "n_envs": 6,
    "group_size": 2,
    "n_steps": 10,
    "batch_size": 30,
    "n_eval_episodes": 0,
    "quiet": True,
    "seed": 4,
    "total_timesteps": 240,
}
ALGOS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "pipeline": {"pipeline": True},
    "dqn": {"algo": "dqn", "learning_starts": 60, "buffer_size": 600},
}


class Watching:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def on_update(self, moment: Moment) -> None:
        self.moments.append(moment)


def config(case: str, workers: int, **more: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{**COMMON, **ALGOS[case], "num_workers": workers, **more})


def train(it: TrainConfig, *callbacks: object) -> str:
    with Run(it, folder=open_folder(it) if it.run.output_dir else None) as run:
        return run.go(callbacks=Callbacks(callbacks)).weights_sha256


class StopAfter:
    """Ends a run after some updates."""

    def __init__(self, updates: int) -> None:
        self._left = updates

    def on_update(self, moment: Moment) -> bool:
        self._left -= 1
        return self._left > 0


@pytest.mark.parametrize("case", ALGOS)
def test_the_same_weights_with_any_number_of_workers_and_after_an_interruption(case: str, tmp_path: Path) -> None:
    whole = train(config(case, 0))
    assert train(config(case, 3)) == whole
    assert train(config(case, 0, shaper_kwargs={"weight": 0.25})) != whole
    # In the middle of episodes: shapers go on from what they had seen of them.
    assert train(config(case, 2, output_dir=tmp_path / "run"), StopAfter(2)) != whole
    assert train(config(case, 1, output_dir=tmp_path / "run", resume=True)) == whole


def test_parts_are_logged_and_the_env_s_own_reward_stays_what_it_is(tmp_path: Path) -> None:
    watching = Watching()
    train(config("ppo", 2, output_dir=tmp_path / "run"), watching)
    rows = list(csv.DictReader((tmp_path / "run" / "progress.csv").read_text().splitlines()))
    last = {
        key.removeprefix("rollout/"): float(value)
        for key, value in rows[-1].items()
        if value and key.startswith("rollout/")
    }
    assert last["ep_rew_mean"] < 0  # the simulator never pays
    assert last["distance_mean"] > 0
    assert last["travelled_mean"] == pytest.approx(2 * last["distance_mean"])
    moment = watching.moments[-1]
    assert moment.reward_parts == pytest.approx(
        {name: last[f"{name}_mean"] for name in ("distance", "patience", "travelled")}, rel=1e-6
    )
    assert moment.extras["true_state"].shape == (11, 6, 2)
    assert (np.diff(moment.extras["true_state"][..., 1], axis=0) <= 1).all()


@pytest.mark.parametrize("algo", ["impala", "a3c"])
def test_asynchronous_modes_shape_too(algo: str) -> None:
    watching = Watching()
    settings = {key: value for key, value in COMMON.items() if key != "batch_size"}
    train(TrainConfig.from_flat(**settings, algo=algo, num_workers=2), watching)
    assert watching.moments[-1].reward_parts["distance"] > 0


def test_extras_and_shapers_cost_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """With local inference a rollout is one message per worker; extras and shapers must not add any."""
    messages: list[str] = []
    send = WorkerHandle.send

    def counted(self: WorkerHandle, message: bytes) -> None:
        call = pickle.loads(message)
        messages.append("close" if call is None else call[0].__name__)
        send(self, message)

    monkeypatch.setattr(WorkerHandle, "send", counted)
    for n_steps in (5, 20):
        cases: tuple[dict[str, Any], ...] = ({}, {"shaper": None, "shaper_kwargs": {}, "env": "CartPole-v1"})
        for plain in cases:
            messages.clear()
            more = {**plain, "n_steps": n_steps, "batch_size": 6 * n_steps, "total_timesteps": 3 * 6 * n_steps}
            train(config("ppo", 2, **more))
            assert messages.count("collect") == 2 * 3
            assert set(messages) <= {"reset", "collect", "close"}
