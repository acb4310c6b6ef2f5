"""The state of a training: what a checkpoint and a model contain, and what a resumed run must share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.envs.toys import GOAL

from paceline.config.train_config import TrainConfig
from paceline.spec import FAILED, SUCCEEDED
from paceline.train.build import build
from paceline.train.checkpoint import Snapshot, State
from paceline.train.training import Training

SMALL: dict[str, Any] = {
    "env": "tests.games:Drift", "n_envs": 4, "group_size": 2, "n_steps": 8, "hidden_sizes": (8,), "num_workers": 0,
    "normalize_obs": True, "normalize_reward": True,
}  # fmt: skip


@contextmanager
def training(**settings: Any) -> Iterator[Training]:
    made = build(TrainConfig.from_flat(**{**SMALL, **settings}))
    try:
        yield made
    finally:
        made.close()


def iterate(one: Training, times: int) -> None:
    """Learn, and count steps as the training loop does."""
    for _ in range(times):
        one.driver.iterate()


def saved(one: Training) -> Snapshot:
    """A copy of what a checkpoint stores."""
    arrays: State = {key: np.array(value) for key, value in one.state().items()}
    return Snapshot(Path("memory"), arrays, {"clock": one.clock.state(), "iterations": 3})


def test_a_resumed_training_continues_with_the_same_weights() -> None:
    with training() as whole:
        whole.rollouts.reset()
        iterate(whole, 2)
        half = saved(whole)
        iterate(whole, 2)
        expected, steps = whole.weights.sha256(), whole.tracker.steps
    with training() as resumed:
        assert resumed.resume(half) == []
        assert resumed.resumed_meta["iterations"] == 3
        assert resumed.tracker.steps == steps // 2
        iterate(resumed, 2)
        assert (resumed.weights.sha256(), resumed.tracker.steps) == (expected, steps)


def test_a_checkpoint_has_the_state_of_every_part() -> None:
    with training() as full, training(normalize_obs=False, normalize_reward=False) as plain:
        for one in (full, plain):
            one.rollouts.reset()
            iterate(one, 1)
        parts = {key.partition("/")[0] for key in full.state()}
        assert parts == {"learner", "rollouts", "tracker", "obs_norm", "reward_norm"}
        assert {key.partition("/")[0] for key in plain.state()} == {"learner", "rollouts", "tracker"}


def test_a_model_has_weights_and_observation_statistics_only() -> None:
    with training() as one:
        state = one.model_state()
        assert {key.partition("/")[0] for key in state} == {"learner", "obs_norm"}
        assert [key for key in state if key.startswith("learner/")] == ["learner/weights"]


def test_a_snapshot_in_memory_is_a_copy() -> None:
    with training() as one:
        one.rollouts.reset()
        snapshot = one.snapshot()
        before = snapshot.arrays["learner/weights"].copy()
        assert snapshot.meta["identity"] == one.identity()
        iterate(one, 1)
        np.testing.assert_array_equal(snapshot.arrays["learner/weights"], before)
        assert not np.array_equal(one.model_state()["learner/weights"], before)


def test_a_warm_start_takes_weights_and_statistics_but_no_counters() -> None:
    with training() as source, training(seed=9) as warm:
        source.rollouts.reset()
        iterate(source, 2)
        warm.load_model(source.snapshot())
        assert warm.weights.sha256() == source.weights.sha256()
        for key, value in source.model_state().items():
            np.testing.assert_array_equal(warm.model_state()[key], value)
        assert (warm.tracker.steps, warm.learner.version) == (0, 0)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"seed": 9}, "seed"),
        ({"n_envs": 8}, "n_envs"),
        ({"group_size": 1}, "group_size"),
        ({"n_steps": 16}, "n_steps"),
        ({"grad_shards": 3}, "grad_shards"),
        ({"normalize_reward": False}, "normalize_reward"),
        ({"pipeline": True}, "pipeline"),
        ({"env": "tests.games:Counter"}, "env"),
    ],
)
def test_what_an_exact_resume_depends_on_is_in_the_schedule(change: dict[str, Any], key: str) -> None:
    with training() as one, training(**change) as other:
        assert one.schedule()[key] != other.schedule()[key]


def test_what_does_not_change_the_bits_is_not_in_the_schedule() -> None:
    with training() as one, training(learning_rate=0.1, total_timesteps=7, num_workers=2) as other:
        assert one.schedule() == other.schedule()


def test_opponents_and_shaper_are_in_the_schedule() -> None:
    game = {"env": "paceline/TicTacToe-v0", "normalize_obs": False, "normalize_reward": False}
    with training(**game) as one:
        assert one.schedule()["opponents"] == ["random"]
    shaped = {"env": "tests.simulator:Simulator", "shaper": "tests.simulator:Travelled"}
    with training(**shaped) as one:
        assert {"travelled"} < set(one.schedule()["shaping"]) <= {"env_reward", *one.tracker.reward_parts}


def test_tags_of_league_and_shaper_are_reported_beside_those_of_every_training() -> None:
    with training() as plain:
        assert plain.extra_tags() == ()
    game = {"env": "paceline/TicTacToe-v0", "normalize_obs": False, "normalize_reward": False}
    with training(**game) as league:
        assert {"train/elo", "train/snapshots", "train/win_rate_random"} <= set(league.extra_tags())
    shaped = {"env": "tests.simulator:Simulator", "shaper": "tests.simulator:Travelled"}
    with training(**shaped) as one:
        assert set(one.extra_tags()) == {f"rollout/{name}_mean" for name in one.tracker.reward_parts}
        assert one.extra_tags()


def test_closing_twice_is_fine_and_frees_the_memory() -> None:
    with training() as one:
        one.close()
        assert not one.arena._arrays


def threads_of(**settings: Any) -> tuple[object, object]:
    with training(env="paceline/Busy-v0", normalize_obs=False, normalize_reward=False, **settings) as one:
        one.rollouts.reset()
        layout = one.started_layout()
        return layout.env_threads, layout.env_threads_asked


@pytest.mark.parametrize("algo", ["ppo", "impala", "dqn"])
def test_the_layout_has_the_env_threads_that_workers_have_chosen(algo: str) -> None:
    waits = {"env_kwargs": {"sleep_ms": 5.0}, "num_workers": 2, "algo": algo, "n_steps": 1}
    assert threads_of(**waits) == (2, "auto"), "all of its two envs, because they wait"
    assert threads_of(**waits, env_threads=1) == (1, 1)
    assert threads_of(num_workers=2, algo=algo, n_steps=1) == (1, "auto"), "envs that compute"
    assert threads_of(num_workers=0, algo=algo, n_steps=1) == (1, "auto")


def test_self_play_has_no_env_threads() -> None:
    with training(env="paceline/TicTacToe-v0", normalize_obs=False, normalize_reward=False, env_threads=3) as one:
        one.rollouts.reset()
        assert (one.started_layout().env_threads, one.started_layout().env_threads_asked) == (1, 3)


@pytest.mark.parametrize("mode", ["single", "threads", "NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("algo", ["ppo", "impala", "dqn"])
def test_the_success_rate_is_that_of_the_last_steps_of_episodes(algo: str, mode: str) -> None:
    native = mode not in ("single", "threads")
    settings: dict[str, Any] = {
        "env": GOAL, "algo": algo, "native_vector": "always" if native else "never", "n_steps": 16,
        "env_kwargs": {"mode": mode} if native else {}, "env_threads": 2 if mode == "threads" else 1,
    }  # fmt: skip
    if algo == "dqn":
        settings["learning_starts"] = 32
    with training(normalize_obs=False, normalize_reward=False, **settings) as one:
        one.rollouts.reset()
        lengths: list[int] = []
        for _ in range(3):
            one.driver.iterate()
            finished = one.rollouts.last.finished
            lengths += finished.length.tolist()
            for length, success in zip(finished.length, finished.success, strict=True):
                assert success == (0 if length == 3 else SUCCEEDED if length % 2 == 0 else FAILED)
        judged = [length % 2 == 0 for length in lengths if length != 3]
        assert min(len(judged), sum(judged)) > 5
        assert one.tracker.success_rate == pytest.approx(np.mean(judged[-100:]))


@pytest.mark.parametrize("learns", [{"algo": "ppo"}, {"algo": "dqn", "learning_starts": 16, "multi_step": 3}])
@pytest.mark.parametrize("mode", ["single", "NextStep", "SameStep"])
def test_what_an_env_says_of_success_changes_no_weights(learns: dict[str, Any], mode: str) -> None:
    found = set()
    for judges in (True, False):
        kwargs = {"mode": mode, "judges": judges}
        native = "never" if mode == "single" else "always"
        settings: dict[str, Any] = {"env": GOAL, "env_kwargs": kwargs, "native_vector": native, "n_steps": 16, **learns}
        with training(normalize_obs=False, normalize_reward=False, **settings) as one:
            one.rollouts.reset()
            before = one.weights.sha256()
            iterate(one, 4)
            assert one.weights.sha256() != before
            assert (one.tracker.success_rate is not None) == judges
            found.add(one.weights.sha256())
    assert len(found) == 1


def test_the_settings_for_tensorboard_are_those_that_are_set() -> None:
    with training(hidden_sizes=(8, 4), normalize_reward=False) as one:
        found = one.hparams()
    expected = {"algo": "ppo", "seed": 0, "env": "tests.games:Drift", "n_envs": 4, "num_workers": 0, "group_size": 2,
                "learning_rate": 1e-3, "normalize_obs": True, "normalize_reward": False,
                "hidden_sizes": "[8, 4]"}  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "target_kl" not in found, "is not set"
