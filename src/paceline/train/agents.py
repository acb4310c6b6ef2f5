"""The classes of the Python API: `PPO("CartPole-v1", num_workers=4).learn(total_timesteps=200_000)`.

Each class declares its constructor and `load` again for type checkers and editors, with the settings of its algorithm
as keywords (ADR 0028).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from paceline.errors import ConfigError
from paceline.train.agent import Agent
from paceline.train.replay_access import ReplayAccess

if TYPE_CHECKING:
    from paceline.config.keywords import A3CKeywords, APPOKeywords, DQNKeywords, ImpalaKeywords, PPOKeywords
    from paceline.train.agent import EnvArgument


class PPO(Agent):
    """Proximal policy optimisation."""

    algo = "ppo"

    if TYPE_CHECKING:

        def __init__(self, env: EnvArgument, *, verbose: int = 0, **settings: Unpack[PPOKeywords]) -> None: ...

        @classmethod
        def load(
            cls, path: str | Path, env: EnvArgument | None = None, *, verbose: int = 0, **settings: Unpack[PPOKeywords]
        ) -> Self:
            """Create an agent with the weights of a saved model, a checkpoint or a run folder. See `Agent.load`."""


class IMPALA(Agent):
    """Asynchronous workers, with V-trace to correct for their lag (Espeholt et al. 2018)."""

    algo = "impala"

    if TYPE_CHECKING:

        def __init__(self, env: EnvArgument, *, verbose: int = 0, **settings: Unpack[ImpalaKeywords]) -> None: ...

        @classmethod
        def load(
            cls,
            path: str | Path,
            env: EnvArgument | None = None,
            *,
            verbose: int = 0,
            **settings: Unpack[ImpalaKeywords],
        ) -> Self:
            """Create an agent with the weights of a saved model, a checkpoint or a run folder. See `Agent.load`."""


class APPO(Agent):
    """IMPALA with PPO's clipped surrogate."""

    algo = "appo"

    if TYPE_CHECKING:

        def __init__(self, env: EnvArgument, *, verbose: int = 0, **settings: Unpack[APPOKeywords]) -> None: ...

        @classmethod
        def load(
            cls, path: str | Path, env: EnvArgument | None = None, *, verbose: int = 0, **settings: Unpack[APPOKeywords]
        ) -> Self:
            """Create an agent with the weights of a saved model, a checkpoint or a run folder. See `Agent.load`."""


class A3C(Agent):
    """Asynchronous workers that each update shared weights (Mnih et al. 2016)."""

    algo = "a3c"

    if TYPE_CHECKING:

        def __init__(self, env: EnvArgument, *, verbose: int = 0, **settings: Unpack[A3CKeywords]) -> None: ...

        @classmethod
        def load(
            cls, path: str | Path, env: EnvArgument | None = None, *, verbose: int = 0, **settings: Unpack[A3CKeywords]
        ) -> Self:
            """Create an agent with the weights of a saved model, a checkpoint or a run folder. See `Agent.load`."""


class DQN(Agent):
    """Q-learning from a replay buffer that workers fill (Mnih et al. 2015)."""

    algo = "dqn"

    if TYPE_CHECKING:

        def __init__(self, env: EnvArgument, *, verbose: int = 0, **settings: Unpack[DQNKeywords]) -> None: ...

        @classmethod
        def load(
            cls, path: str | Path, env: EnvArgument | None = None, *, verbose: int = 0, **settings: Unpack[DQNKeywords]
        ) -> Self:
            """Create an agent with the weights of a saved model, a checkpoint or a run folder. See `Agent.load`."""

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        total_episodes: int | None = None,
        n_episodes: int | None = None,
        duration: float | str | None = None,
        callbacks: Iterable[object] = (),
        progress_bar: bool = False,
    ) -> Self:
        """See `Agent.learn`; `n_episodes` is another name for `total_episodes`."""
        episodes = total_episodes if n_episodes is None else n_episodes
        return super().learn(
            total_timesteps,
            total_episodes=episodes,
            duration=duration,
            callbacks=callbacks,
            progress_bar=progress_bar,
        )

    def _replay(self) -> ReplayAccess:
        replay = self._started().training.driver.replay
        if replay is None:
            raise RuntimeError("dqn: the training has no replay buffer.")
        return replay

    def add_trajectory(self, transitions: Sequence[Sequence[Any]]) -> None:
        """Add steps of your own collector to the replay buffer. They do not count towards a budget.

        Args:
            transitions: Consecutive steps of one episode: (obs, action, reward, next_obs, terminated). If actions are
                masked: (..., mask, next_mask), the legal actions before and after the step.
        """
        self._replay().collector.add_trajectory(transitions)

    def update(self, updates: int = 1) -> dict[str, float]:
        """Learn from the replay buffer without collecting.

        Args:
            updates: Number of gradient steps.

        Returns:
            Statistics, by the names of the `train/` tags.
        """
        replay = self._replay()
        if not replay.collector.stored:
            raise ConfigError("update: the replay buffer is empty. Use learn or add_trajectory first.")
        stats = replay.learner.optimise(updates)
        self._refresh()
        return stats
