"""The parts of a training, and which of their state goes into checkpoints and models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from paceline.batch import Trajectory
from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.parts import under
from paceline.memory.shared import Arena
from paceline.memory.weights import Weights
from paceline.memory.worker_status import STEPS
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.runtime.protocol import Job, Runtime
from paceline.spec import EnvSpec
from paceline.train.checkpoint import Snapshot, State
from paceline.train.evaluate import Evaluator, Predictor
from paceline.train.layout import Layout
from paceline.train.loop import Collector, Learner
from paceline.train.model import model_state
from paceline.train.plan import AnyDriver, Plan
from paceline.train.recipes import identity
from paceline.train.stopping import Interruptible
from paceline.train.worker_recipe import ENV_THREADS


@dataclass(slots=True)
class Training:
    """The parts of a training, made by `build`. Owns workers and shared memory: close it."""

    config: TrainConfig
    spec: EnvSpec
    plan: Plan[Job]
    layout: Layout
    clock: Clock
    tracker: EpisodeTracker
    arena: Arena
    weights: Weights
    driver: AnyDriver
    """Collector and learner; `driver.train` is the training loop."""
    runtime: Runtime[Job]
    predictor: Predictor
    reward_norm: RewardNormaliser | None
    obs_norm: ObsNormaliser | None
    device: torch.device
    evaluation_env: EnvRecipe
    resumed_meta: dict[str, Any] = field(default_factory=dict)
    """Metadata of the checkpoint that this training was resumed from; empty for a new run."""

    @property
    def rollouts(self) -> Collector[Trajectory] | Collector[int]:
        """The collector."""
        return self.driver.collector

    @property
    def learner(self) -> Learner[Trajectory] | Learner[int]:
        """The learner."""
        return self.driver.learner

    def started_layout(self) -> Layout:
        """The layout with the env threads that the workers have chosen. Call it after the envs have been reset."""
        return replace(self.layout, env_threads=max(1, int(self.arena[ENV_THREADS].max())))

    def collected(self) -> int:
        """Steps that workers have collected so far, with those of a rollout under way; only for display."""
        return int(self.arena["heartbeat"][:, STEPS].sum())

    @property
    def interruptible(self) -> Interruptible:
        """Marks when Ctrl-C may cut off a rollout or an evaluation."""
        return self.rollouts.restarts.interruptible

    def identity(self) -> dict[str, Any]:
        """Properties that a snapshot must share for its weights to fit this training."""
        return identity(self.config, self.spec, len(self.weights.vector))

    def schedule(self) -> dict[str, Any]:
        """Further properties that a checkpoint must share for a bit-exact resume."""
        return {
            "env": self.plan.base.env.name,
            "seed": self.config.run.seed,
            "n_envs": self.config.n_envs,
            "group_size": self.layout.group_size,
            "n_steps": self.config.rollout_steps,
            "grad_shards": self.config.grad_shards(image=self.spec.has_image),
            "normalize_reward": self.config.env.normalize_reward,
            **({} if self.plan.base.league is None else self.plan.base.league.identity()),
            **({} if self.spec.shaping is None else {"shaping": list(self.spec.reward_parts)}),
            **self.plan.identity(),
        }

    def hparams(self) -> dict[str, bool | float | str]:
        """Settings and layout of this training, without those that are not set, for TensorBoard's table of runs."""
        config, layout = self.config.to_dict(), self.layout
        settings = {
            "algo": self.config.run.algo,
            "seed": self.config.run.seed,
            **config["env"],
            **config["training"],
            **config["policy"],
            "group_size": layout.group_size,
            "num_workers": layout.num_workers,
        }
        return {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in settings.items()
            if value not in (None, [], {})
        }

    def extra_tags(self) -> tuple[str, ...]:
        """TensorBoard tags of this training beyond those of every training."""
        league = self.plan.base.league
        names = (*self.plan.stats(), *(league.stats if league else ()))
        reward_parts = () if self.spec.shaping is None else self.tracker.reward_parts
        return (*(f"train/{name}" for name in names), *(f"rollout/{name}_mean" for name in reward_parts))

    def model_state(self) -> State:
        """Weights and observation statistics, which prediction needs. Views of shared memory, not copies."""
        return model_state(self.weights.vector, self.obs_norm)

    def snapshot(self) -> Snapshot:
        """A copy of `model_state`, as a snapshot that is not on disk."""
        copied = {key: value.copy() for key, value in self.model_state().items()}
        return Snapshot(Path("memory"), copied, {"identity": self.identity()})

    def state(self) -> State:
        """All arrays that a bit-exact resume needs. Some are views of shared memory."""
        state = self.model_state() | under("learner/", self.learner.state())
        state |= under("rollouts/", self.rollouts.state()) | under("tracker/", self.tracker.state())
        if self.reward_norm is not None:
            state |= under("reward_norm/", self.reward_norm.state())
        return state

    def load_model(self, snapshot: Snapshot) -> None:
        """Load weights and observation statistics only: a warm start."""
        self.learner.load_weights(snapshot.arrays["learner/weights"])
        if self.obs_norm is not None and (state := snapshot.part("obs_norm")):
            self.obs_norm.load(state)

    def resume(self, snapshot: Snapshot) -> list[int]:
        """Restore the state of a checkpoint; returns the envs that could not be restored and started a new episode."""
        self.resumed_meta = snapshot.meta
        self.clock.load(snapshot.meta["clock"])
        self.load_model(snapshot)
        self.learner.load(snapshot.part("learner"))
        self.tracker.load(snapshot.part("tracker"))
        if self.reward_norm is not None:
            self.reward_norm.load(snapshot.part("reward_norm"))
        return self.rollouts.load(snapshot.part("rollouts"))

    def evaluator(self) -> Evaluator:
        """Create an evaluator of the newest weights, on an env of its own."""
        config = self.config
        return Evaluator(self.evaluation_env, self.predictor, seed=config.run.seed, timeouts_s=config.env.timeouts_s)

    def close(self) -> None:
        """End the workers and free the shared memory. Idempotent."""
        self.runtime.close()
        self.arena.close()
