"""Time `learner.update` alone, on a batch that was collected once: shared by the suites `grad` and `ratios`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from benchmarks.harness.frames_env import Frames
from paceline.algos.ppo import PPOLearner
from paceline.batch import Trajectory
from paceline.config.train_config import TrainConfig
from paceline.insight.windows import iterate
from paceline.train.algorithms.ppo import ppo_plan
from paceline.train.build import build


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A network, its minibatch, and the speed-up that two workers must reach."""

    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    repeats: int
    """Updates per measurement, so that a measurement is long enough to time."""
    target: float | None = None
    """Speed of two workers over one thread, where the project claims one."""

    def config(self, **settings: Any) -> TrainConfig:
        """The config of this network, with `settings` changed."""
        # With this learning rate no weight changes, so every update does the same work.
        common = {"num_workers": 0, "learning_rate": 1e-12, "normalize_reward": False, "quiet": True}
        return TrainConfig.from_flat(**{**common, **self.settings, **settings})

    def default_shards(self) -> int:
        """`grad_shards` of a user who does not set it."""
        return self.config().grad_shards(image=self.settings["env"] is Frames)


CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 32, "n_steps": 128}
NETWORKS = {
    "cnn": Network(
        title="NatureCNN, 84x84x4, minibatch 256",
        settings={"env": Frames, "n_envs": 8, "n_steps": 64, "batch_size": 256, "n_epochs": 1},
        repeats=1,
        target=1.7,
    ),
    "mlp": Network(
        title="MLP 64x64, minibatch 1024",
        settings={**CARTPOLE, "batch_size": 1024, "n_epochs": 4},
        repeats=12,
        target=1.0,
    ),
    "small": Network(
        title="MLP 64x64, minibatch 256", settings={**CARTPOLE, "batch_size": 256, "n_epochs": 4}, repeats=6
    ),
    "middle": Network(
        title="MLP 256x256, minibatch 128",
        settings={**CARTPOLE, "batch_size": 128, "n_epochs": 1, "hidden_sizes": (256, 256)},
        repeats=4,
    ),
    "wide": Network(
        title="MLP 512x512, minibatch 1024",
        settings={**CARTPOLE, "batch_size": 1024, "n_epochs": 1, "hidden_sizes": (512, 512)},
        repeats=2,
    ),
}


class Updates:
    """Call it to get the milliseconds per minibatch of updates from always the same batch.

    Args:
        network: Network and minibatch size.
        settings: Changes to its config.
        stack: Closes the training.
    """

    def __init__(self, network: Network, settings: Mapping[str, Any], stack: ExitStack) -> None:
        config = network.config(**settings)
        training = build(config)
        stack.callback(training.close)
        training.rollouts.reset()
        iterate(training)  # warm-up: loads kernels and touches every page
        learner, plan = training.learner, ppo_plan(training.plan)
        batch = training.rollouts.next(learner.version)
        if plan is None or not isinstance(learner, PPOLearner) or not isinstance(batch, Trajectory):
            raise TypeError(f"minibatches are PPO's, not those of {config.run.algo}")
        self._learner, self._batch, self._repeats = learner, batch, network.repeats
        size = config.training.batch_size or config.batch_steps
        self._minibatches = network.repeats * plan.settings.n_epochs * config.batch_steps // size

    def __call__(self) -> float:
        """Measure once."""
        began = perf_counter()
        for _ in range(self._repeats):
            self._learner.update(self._batch, 0.0)
        return (perf_counter() - began) * 1e3 / self._minibatches


@contextmanager
def updates_of(network: Network, variants: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Updates]]:
    """One training per variant of the settings; all stay alive until the context ends."""
    with ExitStack() as stack:
        yield {name: Updates(network, settings, stack) for name, settings in variants.items()}
