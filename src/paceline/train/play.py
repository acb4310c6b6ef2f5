"""A trained agent at play: evaluation of a run after the fact, with a video of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe, describe
from paceline.errors import ConfigError, PacelineError
from paceline.measure.video import Video
from paceline.train import checkpoint, model
from paceline.train.checkpoint import Snapshot
from paceline.train.evaluate import Evaluation, Evaluator

DEFAULT_FPS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What was played, and with which weights."""

    snapshot: Path
    steps: int | None
    """Steps that the weights were trained for."""
    env: str
    result: Evaluation
    video_s: float | None = None
    """Length of the video."""
    video_episodes: int = 0
    """Episodes that it shows, the last perhaps in part."""


def play(
    path: Path, *, episodes: int, seed: int | None = None, deterministic: bool = True, video: Path | None = None
) -> Played:
    """Play episodes with the weights of a run's newest checkpoint, of a checkpoint, or of a saved model.

    Args:
        path: The run, checkpoint or model.
        episodes: How many.
        seed: Chooses the episodes; the run's own seed gives those of its evaluations.
        deterministic: The most probable action; otherwise a sample.
        video: File to write, .gif or .mp4: as many of the episodes as fit into it.

    Raises:
        CheckpointError: There is nothing to play, or it is damaged.
        ConfigError: The env cannot be made or rendered, or the video not written.
    """
    snapshot = checkpoint.load(checkpoint.find(path))
    config = _config(snapshot)
    loaded = model.load(config, snapshot)
    camera = None if video is None else _Camera(loaded.recipe, video)
    recipe = loaded.recipe if camera is None else camera.recipe
    evaluator = Evaluator(
        recipe,
        loaded.predictor,
        seed=config.run.seed if seed is None else seed,
        timeouts_s=config.env.timeouts_s,
    )
    try:
        result = evaluator.evaluate(
            episodes, deterministic=deterministic, watch=None if camera is None else camera.look
        )
    finally:
        evaluator.close()
    if camera is not None:
        camera.video.write()
    return Played(
        snapshot=snapshot.path,
        steps=snapshot.meta.get("steps"),
        env=recipe.name,
        result=result,
        video_s=camera.video.seconds if camera else None,
        video_episodes=camera.episodes if camera else 0,
    )


def _config(snapshot: Snapshot) -> TrainConfig:
    saved = model.saved_settings(snapshot)
    if model.is_python_object(saved["env"]):
        raise ConfigError(
            f"{snapshot.path}: its env was a Python object and is not in the file. "
            "Use PPO.load(path, env=...).evaluate() in Python."
        )
    return TrainConfig.from_flat(**saved)


class _Camera:
    """Films an env that is being played."""

    def __init__(self, recipe: EnvRecipe, path: Path) -> None:
        self.recipe = replace(recipe, kwargs={**recipe.kwargs, "render_mode": "rgb_array"}, native_vector="never")
        self.episodes = 0
        env = _make(self.recipe)
        try:
            fps = float((env.metadata or {}).get("render_fps") or DEFAULT_FPS)
        finally:
            env.close()
        self.video = Video(path, fps)

    def look(self, env: gym.Env[Any, Any], first: bool) -> None:
        """Take a frame; `first` is that of a new episode."""
        if self.video.full:
            return
        self.episodes += first
        try:
            frame = env.render()
        except PacelineError:
            raise
        except Exception as error:
            raise ConfigError(
                f"video: env {self.recipe.name!r} cannot be rendered ({describe(error)}). "
                "Leave out --video to evaluate."
            ) from error
        self.video.add(frame)


def _make(recipe: EnvRecipe) -> gym.Env[Any, Any]:
    try:
        return recipe.make()
    except PacelineError as error:
        raise ConfigError(
            f"video: env {recipe.name!r} cannot be made with render_mode='rgb_array' ({error}). "
            "Leave out --video to evaluate."
        ) from error
