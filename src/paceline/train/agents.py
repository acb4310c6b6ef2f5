"""The Python face: `PPO("CartPole-v1", num_workers=4).learn(total_timesteps=200_000)`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from paceline.errors import ConfigError
from paceline.measure.record import Summary
from paceline.train import checkpoint, model
from paceline.train.checkpoint import Snapshot
from paceline.train.coerce import duration_s
from paceline.train.config import TrainConfig
from paceline.train.evaluate import Evaluation
from paceline.train.run import Run, all_callbacks, open_folder


class Agent:
    """A policy that can be trained, asked, saved and loaded.

    Settings have the names of the command line's flags. Workers start with the first `learn` and wait between
    calls; `close`, or the end of a `with` block, ends them.
    """

    algo: ClassVar[str]

    def __init__(self, env: Any, **settings: Any) -> None:
        """Configure; nothing is started yet.

        Args:
            env: A Gymnasium id, `module:callable`, or a callable that makes an env.
            **settings: Any setting of `paceline train`, such as `num_workers=4, seed=7`; `quiet` is on unless told.
        """
        self.config = TrainConfig.from_flat(**{"quiet": True, **settings, "env": env, "algo": self.algo})
        self.summary: Summary | None = None
        """What the last `learn` did."""
        self._run: Run | None = None
        self._model: model.Model | None = None
        self._snapshot: Snapshot | None = None

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        total_episodes: int | None = None,
        duration: float | str | None = None,
        callbacks: Iterable[object] = (),
    ) -> Self:
        """Train for a further budget; without one, for the config's. A run folder is written if `output_dir` is set.

        Args:
            total_timesteps: Steps of all envs together.
            total_episodes: Finished episodes.
            duration: Hours, or text such as `90s`, `15m`, `2h`.
            callbacks: Objects with methods of `paceline.train.callbacks.Callback`; one that returns False stops.
        """
        watchers = all_callbacks(self.config, callbacks)
        if self._run is None:
            folder = open_folder(self.config) if self.config.run.output_dir else None
            self._run = Run(self.config, folder=folder, init=self._snapshot)
        try:
            self.summary = self._run.go(
                steps=None if total_timesteps is None else int(total_timesteps),
                episodes=None if total_episodes is None else int(total_episodes),
                seconds=None if duration is None else duration_s(duration),
                callbacks=watchers,
            )
        except BaseException:
            self.close()
            raise
        if self._model is not None:
            self._model.take(self._run.training.model_state())
        if self.summary.stop_reason == "SIGINT":
            raise KeyboardInterrupt  # stopped at a safe point; the agent keeps what it has learned
        if self.summary.stop_reason == "SIGTERM":
            raise SystemExit(143)
        return self

    def predict(self, obs: Any, *, mask: Any = None, deterministic: bool = True) -> Any:
        """The action for one observation, as `env.step` takes it.

        Args:
            obs: One observation of the env's space.
            mask: Legal actions, where the env says so.
            deterministic: The most probable action; otherwise a sample.
        """
        return self._current().predictor(obs, mask=mask, deterministic=deterministic)

    def evaluate(self, n_episodes: int = 10, *, deterministic: bool = True) -> Evaluation:
        """Play episodes on one env of its own, always the same ones."""
        current = self._current()
        evaluator = current.evaluator(seed=self.config.run.seed)
        try:
            return evaluator.evaluate(n_episodes, deterministic=deterministic)
        finally:
            evaluator.close()

    def save(self, path: str | Path) -> None:
        """Write weights, observation statistics and config to a folder; nothing in it can run when loaded."""
        current = self._current()
        checkpoint.save(Path(path), current.arrays(), {"identity": current.identity, "config": self.config.to_dict()})

    @classmethod
    def load(cls, path: str | Path, env: Any = None, **settings: Any) -> Self:
        """An agent with the weights of a saved model, a checkpoint, or a run folder's newest checkpoint.

        Args:
            path: What `save` or a run wrote.
            env: The env, where it was a Python callable and could not be saved.
            **settings: Settings to change, as in the constructor.
        """
        snapshot = checkpoint.load(checkpoint.find(Path(path)))
        saved = model.saved_settings(snapshot)
        if env is None and model.is_python_object(saved["env"]):
            raise ConfigError(
                f"{path}: its env was a Python object and is not in the file. Give it: load(path, env=...)."
            )
        agent = cls(**{"quiet": True, **saved, **settings, "env": env or saved["env"]})
        agent._snapshot = snapshot
        agent._current()  # a model that does not fit is refused now
        return agent

    def close(self) -> None:
        """End the workers. The agent can still predict; another `learn` starts from the weights it has."""
        if self._run is not None:
            run, self._run = self._run, None
            # No env is made for this: it may be what has just failed.
            self._snapshot = run.training.snapshot()
            run.close()
            if self._model is not None:
                self._model.take(self._snapshot.arrays)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _current(self) -> model.Model:
        """The newest weights as a model of its own."""
        if self._model is None:
            self._model = model.load(self.config, self._snapshot)
            if self._run is not None:
                self._model.take(self._run.training.model_state())
        return self._model


class PPO(Agent):
    """Proximal policy optimisation."""

    algo = "ppo"


class IMPALA(Agent):
    """Workers that never wait, and V-trace (Espeholt et al. 2018)."""

    algo = "impala"


class APPO(Agent):
    """IMPALA with PPO's clipped surrogate."""

    algo = "appo"


class A3C(Agent):
    """Workers that learn by themselves, on weights that all share (Mnih et al. 2016)."""

    algo = "a3c"
