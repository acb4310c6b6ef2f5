"""From a config to a training that is ready to run: every part made once, in order, and wired.

env spec -> policy -> arena -> learner (weights are in the arena now) -> workers
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.algos.ppo_gradient import DeviceGradients, Gradients, PPOGradient, WorkersGradients
from paceline.algos.table import LEARNERS
from paceline.collect.history import EpisodeHistory
from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots, SlotShape
from paceline.memory.weights import Weights
from paceline.nets.compiled import usable_rows
from paceline.nets.flat import FlatParameters, bind, size_of
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.distributions import head_for
from paceline.runtime import threads
from paceline.runtime.forkserver import StartMethod, default_start_method
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Runtime
from paceline.spec import EnvSpec
from paceline.train import layout as layouts
from paceline.train.checkpoint import Arrays, Snapshot
from paceline.train.config import TrainConfig
from paceline.train.evaluate import Evaluator, Predictor
from paceline.train.program import PRELOAD, WorkerProgram, env_recipe, identity, policy_recipe
from paceline.train.rollouts import Rollouts


@dataclass(slots=True)
class Training:
    """The parts of one training. Owns the workers and the shared memory: close it."""

    config: TrainConfig
    spec: EnvSpec
    recipe: EnvRecipe
    program: WorkerProgram
    layout: layouts.Layout
    clock: Clock
    tracker: EpisodeTracker
    arena: Arena
    weights: Weights
    learner: Any
    runtime: Runtime
    rollouts: Rollouts
    predictor: Predictor
    reward_norm: RewardNormaliser | None
    obs_norm: ObsNormaliser | None
    device: torch.device
    compiled: bool
    """Whether gradients are compiled: asked for, and possible here."""
    resumed_meta: dict[str, Any] = field(default_factory=dict)
    """The manifest of the checkpoint this training goes on from."""

    def identity(self) -> dict[str, Any]:
        """What a snapshot must agree on for its weights to be of use here."""
        return identity(self.config, self.spec, len(self.weights.vector))

    def schedule(self) -> dict[str, Any]:
        """What a bit-exact continuation must agree on besides."""
        return {
            "env": self.recipe.name,
            "seed": self.config.run.seed,
            "n_envs": self.config.n_envs,
            "group_size": self.layout.group_size,
            "n_steps": self.config.training.n_steps,
            "grad_shards": self.program.shards,
            "pipeline": self.config.training.pipeline,
            "compiled": self.compiled,
            "normalize_reward": self.config.env.normalize_reward,
        }

    def model_state(self) -> Arrays:
        """What prediction needs: weights and observation statistics."""
        state: Arrays = {"learner/weights": self.weights.vector.numpy()}
        if self.obs_norm is not None:
            state |= {f"obs_norm/{key}": value for key, value in self.obs_norm.state().items()}
        return state

    def snapshot(self) -> Snapshot:
        """The same as a snapshot that was never on disk."""
        copied = {key: value.copy() for key, value in self.model_state().items()}
        return Snapshot(Path("memory"), copied, {"identity": self.identity()})

    def state(self) -> Arrays:
        """All that a bit-exact resume needs."""
        parts = {"learner": self.learner, "rollouts": self.rollouts, "tracker": self.tracker}
        if self.reward_norm is not None:
            parts["reward_norm"] = self.reward_norm
        state = self.model_state()
        for prefix, part in parts.items():
            state |= {f"{prefix}/{key}": value for key, value in part.state().items()}
        return state

    def load_model(self, snapshot: Snapshot) -> None:
        """A warm start: weights and observation statistics, nothing else."""
        self.learner.load_weights(snapshot.arrays["learner/weights"])
        if self.obs_norm is not None and (state := snapshot.part("obs_norm")):
            self.obs_norm.load(state)

    def resume(self, snapshot: Snapshot) -> list[int]:
        """Continue exactly; returns the envs that could not be restored and began a new episode."""
        self.resumed_meta = snapshot.meta
        self.clock.load(snapshot.meta["clock"])
        self.load_model(snapshot)
        self.learner.load(snapshot.part("learner"))
        self.tracker.load(snapshot.part("tracker"))
        if self.reward_norm is not None:
            self.reward_norm.load(snapshot.part("reward_norm"))
        restarted = self.rollouts.load(snapshot.part("rollouts"))
        self.tracker.forget(restarted)
        if self.reward_norm is not None:
            self.reward_norm.forget(restarted)
        return restarted

    def evaluator(self) -> Evaluator:
        """An env of its own for the newest weights."""
        return Evaluator(self.recipe, self.predictor, seed=self.config.run.seed)

    def close(self) -> None:
        """End the workers, free the memory. Idempotent."""
        self.runtime.close()
        self.arena.close()


def build(config: TrainConfig, clock: Clock | None = None) -> Training:
    """Make everything and start the workers; envs are not reset yet.

    Raises:
        ConfigError: Something does not fit; nothing was started.
        WorkerError: A worker could not build its envs; everything was stopped again.
    """
    clock = clock or Clock()
    env, training, run = config.env, config.training, config.run
    recipe = env_recipe(config)
    spec = recipe.probe()
    image = any(leaf.kind == "image" for leaf in spec.obs)
    config.check_groups(image=image)
    group_size = config.group_size(image=image)
    shape = SlotShape(spec, training.n_steps, config.n_envs // group_size, group_size)
    threads.limit(1)  # acting must round the same here and in workers; the learner asks for more while it learns
    network = policy_recipe(config)
    policy = network.build(spec)
    program = WorkerProgram(
        env=recipe,
        policy=network,
        shape=shape,
        seed=run.seed,
        normalize_obs=env.normalize_obs,
        training=training,
        shards=config.grad_shards(image=image),
        env_threads=config.parallel.env_threads,
    )
    device = pick_device(run.device)
    layout = _layout(config, program, size_of(policy))
    program = replace(program, env_threads=layout.env_threads)
    arena = Arena.create(program.fields(size_of(policy), layout.num_workers))
    with ExitStack() as undo:
        undo.callback(arena.close)
        weights = Weights(arena)
        vector = weights.vector if device.type == "cpu" else torch.empty_like(weights.vector, device=device)
        FlatParameters(policy.to(device), vector)
        weights.vector.copy_(vector)
        if config.policy.compile and device.type == "cpu":
            program = _compiled(program, arena, policy, rows=config.shard_rows(program.shards))
        runtime = _runtime(config, program, arena, layout)
        undo.callback(runtime.close)
        made = _assemble(config, program, layout, arena, runtime, policy, vector, clock)
        undo.pop_all()
    return made


def _assemble(
    config: TrainConfig,
    program: WorkerProgram,
    layout: layouts.Layout,
    arena: Arena,
    runtime: Runtime,
    policy: nn.Module,
    vector: Tensor,
    clock: Clock,
) -> Training:
    """The driver's own parts, around an arena and workers that are there already."""
    run, training, spec = config.run, config.training, program.shape.spec
    weights, shards, slots = Weights(arena), Shards(arena), program.slots(arena)
    collected = Slots(arena, program.shape)
    pipelined: dict[str, Any] = {}
    if training.pipeline:
        pipelined = {"learning": slots, "freeze": partial(program.freeze, arena)}
    obs_norm = program.obs_normaliser(arena)
    reward_norm = RewardNormaliser(config.n_envs, gamma=training.gamma) if config.env.normalize_reward else None
    mirror = program.policy.build(spec)  # acts on the CPU with the published weights, wherever learning happens
    bind(mirror, weights.vector)
    tracker = EpisodeTracker(config.n_envs)
    rows = program.compiled_rows
    if vector.device.type == "cpu":
        gradients: Gradients = WorkersGradients(runtime.work, shards)
    else:
        whole = partial(PPOGradient, policy, head_for(spec.action), spec, training, obs_norm)
        if config.policy.compile:
            rows = usable_rows(policy, config.shard_rows(1), lambda rows: whole(compiled_rows=rows))
        gradients = DeviceGradients(whole(compiled_rows=rows), slots, shards, vector.device)
    learner = LEARNERS[run.algo](
        vector,
        weights,
        gradients,
        shards,
        training,
        seed=run.seed,
        clock=clock,
        obs_norm=obs_norm,
        reward_norm=reward_norm,
    )
    return Training(
        config=config,
        spec=spec,
        recipe=program.env,
        program=program,
        layout=layout,
        clock=clock,
        tracker=tracker,
        arena=arena,
        weights=weights,
        learner=learner,
        runtime=runtime,
        rollouts=Rollouts(
            runtime,
            collected,
            tracker,
            EpisodeHistory(collected, arena["episode"]),
            clock,
            **pipelined,
            trust_env_state=run.trust_env_state,
        ),
        predictor=Predictor(mirror, spec, obs_norm, seed=run.seed),
        reward_norm=reward_norm,
        obs_norm=obs_norm,
        device=vector.device,
        compiled=rows is not None,
    )


def _compiled(program: WorkerProgram, arena: Arena, policy: nn.Module, *, rows: int) -> WorkerProgram:
    """The program with compiled gradients if that works here: then it will in workers, and take them less time."""
    usable = usable_rows(policy, rows, lambda rows: replace(program, compiled_rows=rows).gradient(arena))
    return replace(program, compiled_rows=usable)


def pick_device(name: str) -> torch.device:
    """The learner's device; `auto` takes CUDA, then MPS, then the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: must be cpu, cuda, cuda:N, mps or auto.") from None
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not usable.get(device.type, False):
        raise ConfigError(f"device={name!r}: torch finds no such device here. Use --device auto or cpu.")
    return device


def _layout(config: TrainConfig, program: WorkerProgram, weights: int) -> layouts.Layout:
    shape, parallel = program.shape, config.parallel
    common: dict[str, Any] = {
        "groups": shape.groups,
        "group_size": shape.group_size,
        "cores": threads.core_budget(),
        "threads_per_worker": 1,
        "learner_threads": config.training.learner_threads,
        "start_method": parallel.start_method or default_start_method(),
        "inference": "local",
    }
    if config.num_workers == "auto":
        total = config.run.budget_steps
        rollouts = None if total is None else total / (shape.n_steps * shape.n_envs)
        return layouts.choose(program, weights, rollouts=rollouts, common=common)
    # Sequential is one env after another, unless threads are asked for.
    sequential = config.num_workers == 0 and parallel.env_threads == "auto"
    env_threads = 1 if sequential else parallel.env_threads
    return layouts.Layout(num_workers=config.num_workers, env_threads=env_threads, why="asked for", **common)


def _runtime(config: TrainConfig, program: WorkerProgram, arena: Arena, layout: layouts.Layout) -> Runtime:
    if layout.num_workers == 0:
        return InlineRuntime(program, arena, layout.groups)
    method: StartMethod = config.parallel.start_method or default_start_method()
    if method == "fork":
        if torch.cuda.is_initialized():
            raise ConfigError("start_method='fork': CUDA is in use here and does not survive a fork. Use forkserver.")
        if threading.active_count() > 1:
            warnings.warn(
                f"start_method='fork' with {threading.active_count()} threads alive: a lock that one of them holds "
                "stays locked in the workers. Prefer forkserver.",
                RuntimeWarning,
                stacklevel=2,
            )
    cores = config.parallel.cores
    return ProcessRuntime(
        program,
        arena,
        layout.groups,
        layout.num_workers,
        start_method=method,
        preload=PRELOAD,
        cores=None if cores is None else threads.pinned_cores(cores),
        start_timeout_s=config.env.start_timeout_s,
        step_timeout_s=config.env.env_timeout_s,
        hand=program.gradient(arena),
    )
