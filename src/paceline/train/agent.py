"""`Agent`: what the classes of the Python API have in common. The class of each algorithm is in `agents`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Unpack

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.config.coerce import duration_s
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.measure.record import Summary
from paceline.train import checkpoint, model
from paceline.train.checkpoint import Snapshot
from paceline.train.documented import DocumentedSettings
from paceline.train.evaluate import Evaluation, Evaluator
from paceline.train.first_argument import env_argument
from paceline.train.recipes import env_recipe, evaluation_recipe
from paceline.train.run import Run, all_callbacks, open_folder

if TYPE_CHECKING:
    from paceline.config.shared_keywords import SharedKeywords

EnvArgument: TypeAlias = str | Callable[..., Any]
NOT_LOADED = -1
"""Version of the weights of a model that has not been loaded from the run."""


class Agent(metaclass=DocumentedSettings):
    """A policy that can train, predict, be saved and be loaded.

    Settings have the names of the command-line flags. The first `learn` starts the workers, which then wait between
    calls; `close`, or the end of a `with` block, ends them.
    """

    algo: ClassVar[str]

    def __init__(self, *env: Any, verbose: int = 0, **settings: Any) -> None:
        """Check the settings; no process is started yet.

        Args:
            *env: One argument: a Gymnasium id, `module:callable`, or a callable that makes an env. For more than one,
                such as stable-baselines3's `PPO("MlpPolicy", env)`, the error says what to write instead.
            verbose: 1 shows the progress panel while learning; 0 is silent, as in stable-baselines3.
            **settings: Any setting of `paceline train`, such as `num_workers=4, seed=7`. `num_workers=None` means auto.
                `quiet=False` is another way to write `verbose=1`.

        Raises:
            ConfigError: A setting is unknown or has a bad value, or settings do not fit together.
        """
        settings = {"quiet": not verbose, **settings, **env_argument(type(self).__name__, env, settings)}
        if settings.get("num_workers", 0) is None:
            settings["num_workers"] = "auto"
        if verbose not in (0, 1, 2):
            raise ConfigError(f"verbose={verbose!r}: must be 0 (silent), 1 or 2 (progress panel). Use 1.")
        self.config = TrainConfig.from_flat(**{**settings, "algo": self.algo})
        self.summary: Summary | None = None
        """Summary of the last `learn`; None before."""
        self._run: Run | None = None
        self._learning = False
        self._model: model.Model | None = None
        self._model_version = NOT_LOADED
        self._snapshot: Snapshot | None = None

    @property
    def policy(self) -> nn.Module:
        """The network on the CPU with the newest weights. For reading: training does not see changes of its parameters.

        It is updated in place after each `learn`, and whenever the agent is used.
        """
        return self._current().policy

    def make_env(self) -> gym.Env[Any, Any]:
        """Make a new env as workers do, with wrappers and frame stacking; the caller closes it.

        With `normalize_obs`, `predict` normalises what the env returns.
        """
        return env_recipe(self.config).make()

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        total_episodes: int | None = None,
        duration: float | str | None = None,
        callbacks: Iterable[object] = (),
        progress_bar: bool = False,
    ) -> Self:
        """Train for a further budget; without arguments, for the budget in the settings. Blocks until it is spent.

        Writes a run folder if `output_dir` is set.

        Args:
            total_timesteps: Steps of all envs together.
            total_episodes: Finished episodes.
            duration: Hours, or text such as `90s`, `15m`, `2h`.
            callbacks: Objects with methods of `paceline.train.callbacks.Callback`. Returning False stops training.
            progress_bar: Show one line with a progress bar, unless `verbose=1` shows the panel. In Jupyter it updates
                in place; where neither is possible, a line is printed every five seconds.
        """
        self._refuse_in_callback("learn")
        watchers = all_callbacks(self.config, callbacks, self)
        run = self._started()
        self._learning = True
        try:
            with run.session(
                steps=None if total_timesteps is None else int(total_timesteps),
                episodes=None if total_episodes is None else int(total_episodes),
                seconds=None if duration is None else duration_s(duration),
                callbacks=watchers,
                display="bar" if progress_bar and self.config.run.quiet else None,
            ) as (budget, record):
                run.training.driver.train(budget, record)
            self.summary = record.summary
        except BaseException:
            self._learning = False
            self.close()
            raise
        self._learning = False
        if run.cut_off:
            self.close()
        else:
            self._refresh()
        if self.summary.stop_reason == "SIGINT":
            raise KeyboardInterrupt  # the agent keeps the weights of the last update
        if self.summary.stop_reason == "SIGTERM":
            raise SystemExit(143)
        return self

    def predict(
        self,
        obs: Any,
        state: None = None,
        episode_start: Any = None,  # noqa: ARG002 - see `state`
        deterministic: bool = True,
        *,
        mask: Any = None,
    ) -> tuple[Any, None]:
        """Choose the action for one observation or a batch, in the form of stable-baselines3.

        `action, _ = agent.predict(obs)`

        Args:
            obs: An observation of the env's observation space, or n of them stacked, as a vector env returns them.
            state: Returned as it is. Policies here have no memory; this and `episode_start` exist so that code written
                for stable-baselines3, such as its `evaluate_policy`, can call the agent.
            episode_start: Unused.
            deterministic: Whether to return the most probable action (the default), not a sample.
            mask: The legal actions, `info["action_mask"]`, required if the env masks actions by its info.

        Returns:
            The action as `env.step` expects it, or an array of n actions; and None.

        Raises:
            ConfigError: The shape of the observation or mask is not the env's, or the mask is missing.
        """
        return self._current().predictor(obs, mask=mask, deterministic=deterministic), state

    def evaluate(
        self, n_episodes: int = 10, *, env: EnvArgument | None = None, deterministic: bool = True
    ) -> Evaluation:
        """Play episodes on a new env, with the same seeds in every call.

        Args:
            n_episodes: Number of episodes.
            env: An env with the spaces of the training env, as for the class. Default: `eval_env`, or the training env.
            deterministic: Whether to take the most probable actions, not samples.
        """
        current, config = self._current(), self.config
        recipe = evaluation_recipe(config, current.spec, env)
        with closing(
            Evaluator(recipe, current.predictor, seed=config.run.seed, timeouts_s=config.env.timeouts_s)
        ) as evaluator:
            return evaluator.evaluate(n_episodes, deterministic=deterministic)

    def save(self, path: str | Path) -> None:
        """Write weights, observation statistics and config to a folder. Loading it cannot run code."""
        current = self._current()
        checkpoint.save(Path(path), current.arrays(), {"identity": current.identity, "config": self.config.to_dict()})

    @classmethod
    def load(
        cls, path: str | Path, env: EnvArgument | None = None, *, verbose: int = 0, **settings: Unpack[SharedKeywords]
    ) -> Self:
        """Create an agent with the weights of a saved model, a checkpoint, or the newest checkpoint of a run folder.

        Args:
            path: The folder of the model, checkpoint or run.
            env: The env, required if it was a Python callable, which is not saved.
            verbose: As for the class.
            **settings: Settings that replace the saved ones.
        """
        snapshot = checkpoint.load(checkpoint.find(Path(path)))
        saved = model.saved_settings(snapshot)
        saved_env = saved.pop("env")
        model.require_text(snapshot, {"env": saved_env if env is None else "", **saved, **settings})
        if saved.pop("algo", cls.algo) != cls.algo:
            checkpoint.require_match(snapshot, {"algo": cls.algo})
        agent = cls(saved_env if env is None else env, verbose=verbose, **{**saved, **settings})
        agent._snapshot = snapshot
        agent._current()  # raises now if the model does not fit
        return agent

    def close(self) -> None:
        """End the workers. Idempotent. The agent can still predict; `learn` starts new workers with its weights."""
        self._refuse_in_callback("close")
        if self._run is not None:
            run, self._run = self._run, None
            # Not `_current`, which makes an env: an env may be the reason for closing.
            self._snapshot = run.training.snapshot()
            run.close()
            if self._model is not None:
                self._model.load_arrays(self._snapshot.arrays)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_weights(self) -> NDArray[np.float32]:
        """Return a copy of all weights as one vector, for example for actors in other processes."""
        return self._current().weights.numpy().copy()

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace the weights.

        Args:
            weights: [P] as `get_weights` returns them.
        """
        current = self._current()
        if weights.shape != tuple(current.weights.shape):
            raise ConfigError(
                f"weights: must be a vector of {len(current.weights)} numbers, as get_weights() returns it (got shape "
                f"{weights.shape}). Use an agent of the same env and network."
            )
        current.weights.copy_(torch.from_numpy(np.asarray(weights, np.float32)))
        if self._run is not None:
            training = self._run.training
            training.learner.load_weights(current.weights.numpy())
            # As a new version: workers may be reading the present one.
            training.weights.publish(training.weights.vector)
        else:
            self._snapshot = Snapshot(Path("memory"), current.arrays(), {"identity": current.identity})

    def _started(self) -> Run:
        """The run; starts it, with its workers, if there is none."""
        if self._run is None:
            folder = open_folder(self.config) if self.config.run.output_dir else None
            self._run = Run(self.config, folder=folder, init=self._snapshot)
            self._model_version = NOT_LOADED
        return self._run

    def _current(self) -> model.Model:
        """The model that predicts, with the newest weights, also during training."""
        if self._model is None:
            self._model = model.load(self.config, self._snapshot)
            self._model_version = NOT_LOADED
        if self._run is not None and self._run.training.weights.version != self._model_version:
            self._refresh()
        return self._model

    def _refresh(self) -> None:
        """Copy weights and statistics of the run into the model, if there are both."""
        if self._run is not None and self._model is not None:
            self._model.load_arrays(self._run.training.model_state())
            self._model_version = self._run.training.weights.version

    def _refuse_in_callback(self, method: str) -> None:
        if self._learning:
            raise ConfigError(
                f"{method}: the agent is learning, and a callback cannot call {method}. To stop, return False from the "
                "callback."
            )
