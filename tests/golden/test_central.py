"""Central inference: the driver runs the policy, and the weights are those of local inference bit for bit."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.inside import inside

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.train.run import Run

COMMON: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 12,
    "group_size": 2,
    "n_steps": 16,
    "batch_size": 48,
    "n_eval_episodes": 0,
    "quiet": True,
    "seed": 5,
    "total_timesteps": 12 * 16 * 3,
}
DQN = {"algo": "dqn", "learning_starts": 60, "buffer_size": 900}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"normalize_obs": True},
    "pipeline": {"pipeline": True},
    "shaped simulator": {"env": "tests.simulator:Simulator", "shaper": "tests.simulator:Travelled"},
    "dqn by episodes": {
        "algo": "dqn",
        "n_steps": None,
        "episodes_per_batch": 1,
        "learning_starts": 60,
        "buffer_size": 900,
    },
    "dqn by steps": {"algo": "dqn", "learning_starts": 60, "buffer_size": 900},
}


def config(case: str, **more: Any) -> TrainConfig:
    settings = {**COMMON, **CASES[case], **more}
    return TrainConfig.from_flat(**{key: value for key, value in settings.items() if value is not None})


def train(it: TrainConfig) -> str:
    with Run(it) as run:
        return run.go().weights_sha256


@pytest.mark.parametrize("case", CASES)
def test_central_inference_gives_the_weights_of_local_inference(case: str) -> None:
    local = train(config(case, num_workers=0))
    assert train(config(case, num_workers=0, inference="central", inference_groups=1)) == local
    assert train(config(case, num_workers=2, inference="central", inference_groups=1)) == local
    # Forwards on a CPU take a group at a time however many are asked for at once.
    assert train(config(case, num_workers=3, inference="central", inference_devices="cpu,cpu")) == local


def test_impala_trains_with_central_inference() -> None:
    it = TrainConfig.from_flat(
        **{**COMMON, "algo": "impala", "batch_size": None, "num_workers": 2, "inference": "central"}
    )
    with Run(it) as run:
        summary = run.go()
        assert summary.steps >= COMMON["total_timesteps"]
        assert run.training.layout.inference == "central"


def test_a_worker_that_dies_is_replaced_and_the_weights_stay() -> None:
    undisturbed = train(config("ppo", num_workers=0))
    with Run(config("ppo", num_workers=2, inference="central")) as run:
        update = inside(run).learner.update
        killed: list[int] = []

        def killing(batch: Any, progress: float) -> dict[str, float]:
            stats: dict[str, float] = update(batch, progress)
            if not killed:
                killed.append(run.training.runtime.pids()[1])
                os.kill(killed[0], signal.SIGKILL)
            return stats

        inside(run).learner.update = killing
        summary = run.go()
    assert summary.restarts == 1
    assert summary.weights_sha256 == undisturbed


def test_a_failing_policy_ends_the_run_with_its_own_error() -> None:
    it = config("ppo", num_workers=2, inference="central")
    with Run(it) as run:
        _break_policy(run)
        with pytest.raises(ZeroDivisionError):
            run.go()


def _break_policy(run: Run) -> None:
    runtime: Any = run.training.runtime
    for server in runtime._servers:
        for chunk in server._chunks:
            object.__setattr__(chunk, "actor", lambda _obs: 1 // 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algo": "a3c", "batch_size": None, "inference": "central"}, "each worker acts"),
        ({"inference": "local", "inference_groups": 2}, "are for central inference"),
        ({"inference_devices": "cuda:7"}, "no such device"),
        ({"inference_groups": 0}, "inference_groups"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], words: str) -> None:
    def build() -> None:
        merged = {**COMMON, **settings}
        with Run(TrainConfig.from_flat(**{key: value for key, value in merged.items() if value is not None})):
            pass

    with pytest.raises(ConfigError, match=words):
        build()
