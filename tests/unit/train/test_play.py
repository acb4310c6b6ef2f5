"""`paceline eval`: episodes of a saved policy, and videos of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence
from tests.screens import Screen

from paceline import PPO
from paceline.errors import CheckpointError, ConfigError, MissingExtra
from paceline.train.play import play

SMALL: dict[str, Any] = {"num_workers": 0, "n_envs": 4, "n_steps": 16, "hidden_sizes": (8,), "seed": 5}


def saved(path: Path, env: Any = "tests.screens:Screen", **settings: Any) -> Path:
    PPO(env, **{**SMALL, **settings}).save(path)
    return path


def test_plays_the_episodes_of_the_runs_own_evaluations(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", "CartPole-v1")
    own = PPO.load(path).evaluate(3)
    assert play(path, episodes=3).result == own
    assert play(path, episodes=3, seed=5).result == own
    other = play(path, episodes=3, seed=6)
    assert other.result != own
    assert (other.snapshot, other.env, other.video_s) == (path, "CartPole-v1", None)


def test_plays_on_the_evaluation_env(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", "tests.games:Counter", eval_env_kwargs={"length": 3})
    assert play(path, episodes=2).result.lengths == (3, 3)


def test_stochastic_samples_actions(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    result = play(path, episodes=20, deterministic=False).result
    assert 0.2 < result.mean_reward / 10 < 0.8  # an untrained policy tosses coins
    assert play(path, episodes=20, deterministic=False).result == result


def test_a_run_folder_plays_its_newest_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with PPO("tests.screens:Screen", **SMALL, output_dir=run, save_freq=64) as agent:
        agent.learn(128)
    played = play(run, episodes=1)
    assert (played.snapshot, played.steps) == (run / "checkpoints" / "step_000000000128", 128)
    assert play(run / "checkpoints" / "step_000000000064", episodes=1).steps == 64
    assert play(run / "best_model", episodes=1).snapshot == run / "best_model"


def test_video_shows_every_step_of_every_episode(tmp_path: Path) -> None:
    path = tmp_path / "x.gif"
    played = play(saved(tmp_path / "model"), episodes=2, video=path)
    assert played.video_episodes == 2
    assert played.video_s == pytest.approx(22 / 20)
    with Image.open(path) as image:
        shown = [int((np.asarray(f.convert("L"))[0] > 128).sum()) for f in ImageSequence.Iterator(image)]
    # Equal frames in a row become one that stays longer; there are none here.
    assert shown == [*range(11), *range(11)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"env_kwargs": {"broken": True}}, "cannot be rendered (RuntimeError: no screen)"),
        ({"env": "tests.screens:Unseen"}, "cannot be made with render_mode='rgb_array'"),
    ],
)
def test_a_video_of_an_env_that_cannot_be_rendered_raises(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    path = saved(tmp_path / "model", **settings)
    with pytest.raises(ConfigError) as caught:
        play(path, episodes=1, video=tmp_path / "x.gif")
    assert said in str(caught.value)
    assert "Leave out --video" in str(caught.value)
    assert not (tmp_path / "x.gif").exists()
    assert play(path, episodes=1).result.lengths == (10,)


def test_a_video_of_an_env_that_draws_with_pygame_names_the_extra_that_installs_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", "tests.screens:NeedsPygame")
    with pytest.raises(MissingExtra, match=r"drawing env '.*NeedsPygame' needs an extra: .*'paceline\[video\]'"):
        play(path, episodes=1, video=tmp_path / "x.gif")


def test_missing_and_unloadable_models_raise(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        play(tmp_path / "nowhere", episodes=1)
    with pytest.raises(ConfigError, match=r"the env was a Python object"):
        play(saved(tmp_path / "model", Screen), episodes=1)
