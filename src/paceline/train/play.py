"""`paceline eval`: play episodes with a trained policy, and record a video of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe, describe
from paceline.errors import ConfigError, MissingExtra, PacelineError
from paceline.measure.video import Video
from paceline.train import checkpoint, model
from paceline.train.evaluate import Evaluation, Evaluator
from paceline.train.recipes import evaluation_recipe

DEFAULT_FPS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayResult:
    """Results of the played episodes, and which weights played them."""

    snapshot: Path
    steps: int | None
    """Steps that the weights were trained for; None if unknown."""
    env: str
    result: Evaluation
    video_s: float | None = None
    """Length of the video in seconds; None without a video."""
    video_episodes: int = 0
    """Episodes in the video; the last one may be incomplete."""


def play(
    path: Path, *, episodes: int, seed: int | None = None, deterministic: bool = True, video: Path | None = None
) -> PlayResult:
    """Play episodes with a saved policy. Blocks.

    Args:
        path: The folder of a run (its newest checkpoint plays), a checkpoint or a saved model.
        episodes: Number of episodes.
        seed: Chooses the episodes; None for the seed of the run, which gives the episodes of its evaluations.
        deterministic: Whether to take the most probable actions, not samples.
        video: File to write, .gif or .mp4. It ends when it is full.

    Raises:
        CheckpointError: The folder contains no checkpoint or model, or a damaged one.
        ConfigError: The env cannot be made or rendered, or the video cannot be written.
    """
    snapshot = checkpoint.load(checkpoint.find(path))
    saved = model.saved_settings(snapshot)
    model.require_text(snapshot, saved)
    config = TrainConfig.from_flat(**saved)
    loaded = model.load(config, snapshot)
    recipe = evaluation_recipe(config, loaded.spec)
    camera = None if video is None else _Camera(recipe, video)
    recipe = recipe if camera is None else camera.recipe
    seed = config.run.seed if seed is None else seed
    with closing(Evaluator(recipe, loaded.predictor, seed=seed, timeouts_s=config.env.timeouts_s)) as evaluator:
        result = evaluator.evaluate(
            episodes, deterministic=deterministic, watch=None if camera is None else camera.add_frame
        )
    if camera is not None:
        camera.video.write()
    return PlayResult(
        snapshot=snapshot.path,
        steps=snapshot.meta.get("steps"),
        env=recipe.name,
        result=result,
        video_s=camera.video.seconds if camera else None,
        video_episodes=camera.episodes if camera else 0,
    )


class _Camera:
    """Renders an env while it is played, and collects the frames for a video."""

    def __init__(self, recipe: EnvRecipe, path: Path) -> None:
        self.recipe = replace(recipe, kwargs={**recipe.kwargs, "render_mode": "rgb_array"}, native_vector="never")
        self.episodes = 0
        try:
            env = self.recipe.make()
        except PacelineError as error:
            raise ConfigError(
                f"video: env {recipe.name!r} cannot be made with render_mode='rgb_array' ({error}). "
                "Leave out --video to evaluate without one."
            ) from error
        with closing(env):
            fps = float((env.metadata or {}).get("render_fps") or DEFAULT_FPS)
        self.video = Video(path, fps)

    def add_frame(self, env: gym.Env[Any, Any], first: bool) -> None:
        """Render a frame.

        Args:
            env: The env.
            first: Whether it is the first frame of an episode.

        Raises:
            ConfigError: The env cannot be rendered.
            MissingExtra: The env needs pygame to be rendered.
        """
        if self.video.full:
            return
        self.episodes += first
        try:
            frame = env.render()
        except PacelineError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, ImportError) and (error.__cause__.name or "").startswith("pygame"):
                raise MissingExtra(f"video: drawing env {self.recipe.name!r}", "video") from error
            raise ConfigError(
                f"video: env {self.recipe.name!r} cannot be rendered ({describe(error)}). "
                "Leave out --video to evaluate without one."
            ) from error
        self.video.add(frame)
