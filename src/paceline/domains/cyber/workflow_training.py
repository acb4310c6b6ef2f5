"""`WorkflowTrainer`: trains one trial of a search over workflows, as an ordinary run in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.trials import Trained
from paceline.errors import ConfigError, LearnerError
from paceline.measure.folder import CHECKPOINTS, COMMAND
from paceline.measure.record import SIGNALS
from paceline.train import checkpoint
from paceline.train.callbacks import Moment
from paceline.train.run import train


class WorkflowTrainer:
    """A `Trainer` that trains in this process and its workers.

    Args:
        config: Config of every run, except workflow, folder and budget.
        argv: The command line, for `command.txt`.

    Raises:
        ConfigError: The config disables evaluation, so that trials would have no reward.
    """

    def __init__(self, config: TrainConfig, argv: list[str]) -> None:
        if not config.run.n_eval_episodes:
            raise ConfigError(
                "n_eval_episodes=0: the search compares evaluation rewards, so it needs at least 1. Try 20."
            )
        self._config, self._argv = config, argv

    def __call__(
        self, workflow: str, folder: Path, *, warm: Path | None, episodes: int, seconds: float | None
    ) -> Trained | str:
        """Train or resume one trial. See `Trainer`."""
        config = self._config
        checkpoints = config.run.checkpoint_dir and config.run.checkpoint_dir / folder.name
        begun = (folder / COMMAND).is_file() and bool(checkpoint.steps(checkpoints or folder / CHECKPOINTS))
        config = config.merge(
            env_kwargs={**config.env.env_kwargs, "workflow": workflow},
            output_dir=folder,
            checkpoint_dir=checkpoints,
            resume=begun,
            overwrite=not begun,  # a run killed before its first checkpoint starts over
            init_from=None if begun else warm or config.run.init_from,
            total_episodes=episodes,
            duration=None if seconds is None else f"{seconds}s",
        )
        last = _Last()
        summary = train(config, argv=self._argv, callbacks=[last])
        if summary.stop_reason in SIGNALS:
            return summary.stop_reason
        if summary.final_eval is None:
            raise LearnerError(
                f"{folder}: ended without an evaluation ({summary.stop_reason}). Continue the search with --resume."
            )
        return Trained(
            reward=summary.final_eval.mean_reward,
            compliance=last.reward_parts.get("compliance"),
            fixes=last.reward_parts.get("fixes"),
            episodes=summary.episodes,
            steps=summary.steps,
            wall_s=summary.wall_s,
            stop_reason=summary.stop_reason,
        )


class _Last:
    """Callback that keeps the mean reward parts of the last episodes."""

    def __init__(self) -> None:
        self.reward_parts: Mapping[str, float] = {}

    def on_stop(self, moment: Moment) -> None:
        self.reward_parts = moment.reward_parts
