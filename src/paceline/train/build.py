"""From a config to a training that is ready to run: every part made once, in order, and wired.

env spec -> policy -> arena -> learner (weights are in the arena now) -> workers
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paceline.algos.a3c import A3CLearner
from paceline.algos.dqn_settings import DQNConfig
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import DeviceGradients, Gradients, PPOGradient, ShardedGradient, WorkersGradients
from paceline.algos.settings import A3CConfig, AnySettings, ImpalaConfig, PPOConfig
from paceline.algos.targets import targets_for
from paceline.collect.history import EpisodeHistory
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots, SlotShape
from paceline.memory.weights import LiveWeights
from paceline.nets.compiled import usable_rows
from paceline.nets.flat import FlatParameters, bind, size_of
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.adam import FlatAdam
from paceline.ops.distributions import head_for
from paceline.runtime import threads
from paceline.runtime.forkserver import StartMethod, default_start_method
from paceline.runtime.freight import Freight
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Runtime, shares
from paceline.runtime.ray_cluster import RayCluster, require_ray
from paceline.runtime.ray_runtime import RayRuntime
from paceline.train import layout as layouts
from paceline.train.a3c_program import A3CProgram
from paceline.train.async_program import AsyncProgram
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.config import TrainConfig
from paceline.train.dqn_program import DQNProgram, dqn_parts, dqn_program
from paceline.train.evaluate import Predictor
from paceline.train.freight import SlotFreight
from paceline.train.league import League, LeagueLearner, bare_game, league_recipe
from paceline.train.orders import Orders
from paceline.train.program import PRELOAD, WorkerProgram, acting_head, env_recipe, policy_recipe
from paceline.train.replay_freight import ReplayFreight
from paceline.train.rollouts import Rollouts
from paceline.train.training import Training

AnyProgram = WorkerProgram | AsyncProgram | A3CProgram | DQNProgram
WORKERS_LEARN_ELSEWHERE = (A3CProgram, DQNProgram)
"""Programs whose gradients are not computed from the driver's batches."""


def build(config: TrainConfig, clock: Clock | None = None) -> Training:
    """Make everything and start the workers; envs are not reset yet.

    Raises:
        ConfigError: Something does not fit; nothing was started.
        WorkerError: A worker could not build its envs; everything was stopped again.
    """
    clock = clock or Clock()
    if config.parallel.runtime == "ray":
        require_ray()  # before anything is started
    recipe = env_recipe(config)
    games: list[Any] = []
    spec = recipe.probe(lambda env: games.append(bare_game(env)))
    image = any(leaf.kind == "image" for leaf in spec.obs)
    config.check_groups(image=image)
    threads.limit(1)  # acting must round the same here and in workers; the learner asks for more while it learns
    network = policy_recipe(config)
    policy = network.build(spec)
    group_size, training = config.group_size(image=image), config.training
    base = WorkerProgram(
        env=recipe,
        policy=network,
        shape=SlotShape(spec, config.rollout_steps, config.n_envs // group_size, group_size),
        seed=config.run.seed,
        normalize_obs=config.env.normalize_obs,
        training=training,
        shards=config.grad_shards(image=image),
        pipeline=isinstance(training, PPOConfig) and training.pipeline,
        env_threads=config.parallel.env_threads,
        league=league_recipe(config, games[0]),
    )
    device = _device(config)
    with ExitStack() as undo:
        cluster = _cluster(config, base, undo) if config.parallel.runtime == "ray" else None
        layout = _layout(config, base, size_of(policy), cluster)
        program = _program(config, replace(base, env_threads=layout.env_threads), training, layout)
        arena = Arena.create(program.fields(size_of(policy), layout.num_workers))
        undo.callback(arena.close)
        weights = program.weights(arena)
        vector = weights.vector if device.type == "cpu" else torch.empty_like(weights.vector, device=device)
        FlatParameters(policy.to(device), vector)
        weights.vector.copy_(vector)
        if config.policy.compile and device.type == "cpu" and not isinstance(program, WORKERS_LEARN_ELSEWHERE):
            program = _compiled(program, arena, policy, rows=_shard_rows(config, program, arena))
        hand = None if isinstance(program, WORKERS_LEARN_ELSEWHERE) else program.gradient(arena)
        runtime = _runtime(config, program, arena, layout, hand, cluster, size_of(policy))
        undo.callback(runtime.close)
        if isinstance(runtime, RayRuntime):
            layout = replace(layout, places=runtime.places())
        made = _assemble(config, program, layout, arena, runtime, hand, policy, vector, clock)
        undo.pop_all()
    return made


def _program(config: TrainConfig, base: WorkerProgram, training: AnySettings, layout: layouts.Layout) -> AnyProgram:
    """What workers are handed, by algorithm."""
    if isinstance(training, PPOConfig):
        return base
    if isinstance(training, DQNConfig):
        return dqn_program(config, base)
    owned = shares(layout.groups, layout.num_workers)
    batch_slots = training.batch_slots or len(owned)
    if batch_slots > len(owned) * training.slots_per_worker:
        raise ConfigError(
            f"batch_slots={batch_slots}: {len(owned)} worker(s) with slots_per_worker={training.slots_per_worker} can "
            f"fill {len(owned) * training.slots_per_worker} before one is learned from. Lower it, or raise "
            "--slots-per-worker."
        )
    plan = AsyncProgram(
        base=base,
        sets=training.slots_per_worker,
        sync_every=training.sync_every,
        batch_slots=batch_slots,
        batch_groups=batch_slots * max(share.groups for share in owned),
    )
    return A3CProgram(plan, training, len(owned)) if isinstance(training, A3CConfig) else plan


def _assemble(
    config: TrainConfig,
    program: AnyProgram,
    layout: layouts.Layout,
    arena: Arena,
    runtime: Runtime,
    hand: ShardedGradient | None,
    policy: nn.Module,
    vector: Tensor,
    clock: Clock,
) -> Training:
    """The driver's own parts, around an arena and workers that are there already."""
    base, spec = program.base, program.base.shape.spec
    weights = program.weights(arena)
    mirror = base.policy.build(spec)  # acts on the CPU with the published weights, wherever learning happens
    bind(mirror, weights.vector)
    tracker = EpisodeTracker(config.n_envs)
    reward_norm = RewardNormaliser(config.n_envs, gamma=config.training.gamma) if config.env.normalize_reward else None
    obs_norm = None if isinstance(program, DQNProgram) else base.obs_normaliser(arena.__getitem__)
    rows = base.compiled_rows
    league = None if base.league is None else League(base.league, arena, weights, tracker)
    rollouts: Any
    learner: Any
    match program:
        case DQNProgram():
            learner, rollouts = dqn_parts(config, program, arena, runtime, policy, vector, tracker, clock)
        case A3CProgram():
            rollouts = _async_rollouts(program, arena, runtime, tracker, clock)
            optimiser, progress = program.optimiser(arena), arena["progress"]
            learner = A3CLearner(LiveWeights(arena), weights, optimiser, rollouts.said, progress, clock, obs_norm)
        case _:
            if isinstance(program, WorkerProgram):
                rollouts = _sync_rollouts(config, program, arena, runtime, tracker, clock, reward_norm, league)
            else:
                rollouts = _async_rollouts(program, arena, runtime, tracker, clock)
            gradients, rows = _gradients(config, program, arena, runtime, hand, policy, vector, obs_norm)
            learner = PPOLearner(
                vector,
                weights,
                gradients,
                Shards(arena),
                targets_for(base.rollout_settings, mirror, head_for(spec.action), spec, obs_norm),
                FlatAdam(vector),
                base.rollout_settings,
                seed=config.run.seed,
                clock=clock,
                obs_norm=obs_norm,
                reward_norm=reward_norm,
            )
    if league is not None:
        learner = LeagueLearner(learner, league, alone=not base.pipeline)
    return Training(
        config=config,
        spec=spec,
        recipe=base.env,
        program=base,
        layout=layout,
        clock=clock,
        tracker=tracker,
        arena=arena,
        weights=weights,
        learner=learner,
        runtime=runtime,
        rollouts=rollouts,
        predictor=Predictor(mirror, spec, obs_norm, seed=config.run.seed, head=acting_head(config, spec)),
        reward_norm=reward_norm,
        obs_norm=obs_norm,
        device=vector.device,
        compiled=rows is not None,
    )


def _gradients(
    config: TrainConfig,
    program: WorkerProgram | AsyncProgram,
    arena: Arena,
    runtime: Runtime,
    hand: ShardedGradient | None,
    policy: nn.Module,
    vector: Tensor,
    obs_norm: ObsNormaliser | None,
) -> tuple[Gradients, int | None]:
    """Who computes gradients; and the rows that they are compiled for, if they are."""
    base, shards = program.base, Shards(arena)
    if vector.device.type == "cpu":
        # In async modes the workers have better things to do than shards.
        work = runtime.work if program is base or hand is None else hand.all
        return WorkersGradients(work, shards), base.compiled_rows
    spec, rows = base.shape.spec, base.compiled_rows
    whole = partial(PPOGradient, policy, head_for(spec.action), spec, base.rollout_settings, obs_norm)
    if config.policy.compile:
        rows = usable_rows(policy, config.shard_rows(1), lambda rows: whole(compiled_rows=rows))
    return DeviceGradients(whole(compiled_rows=rows), program.slots(arena), shards, vector.device), rows


def _sync_rollouts(
    config: TrainConfig,
    program: WorkerProgram,
    arena: Arena,
    runtime: Runtime,
    tracker: EpisodeTracker,
    clock: Clock,
    reward_norm: RewardNormaliser | None,
    league: League | None,
) -> Rollouts:
    collected = Slots(arena, program.shape)

    def freeze() -> None:
        program.freeze(arena)
        if league is not None:
            league.look_after(epsilon=0.0)

    return Rollouts(
        runtime,
        collected,
        tracker,
        EpisodeHistory(program.shape.spec, arena["episode"], collected.shown, program.tags(arena)),
        clock,
        reward_norm=reward_norm,
        learning=program.slots(arena) if program.pipeline else None,
        freeze=freeze if program.pipeline else None,
        trust_env_state=config.run.trust_env_state,
    )


def _async_rollouts(
    program: AsyncProgram | A3CProgram, arena: Arena, runtime: Runtime, tracker: EpisodeTracker, clock: Clock
) -> AsyncRollouts:
    plan, training = program.plan, program.base.rollout_settings
    orders = Orders(
        runtime,
        plan.slot_sets(arena),
        shares(plan.base.shape.groups, runtime.num_workers),
        arena["begun_version"],
        arena["episode"],
        tracker,
        program.weights(arena).renew,
    )
    batches = partial(AsyncRollouts, orders, plan.slots(arena), clock, batch_slots=plan.batch_slots)
    if isinstance(training, ImpalaConfig):
        return batches(max_lag=training.max_lag, on_lag=training.on_lag)
    return batches()


def _shard_rows(config: TrainConfig, program: WorkerProgram | AsyncProgram, arena: Arena) -> int:
    """Rows of the largest shard of a minibatch."""
    shape = program.slots(arena).shape
    total = shape.n_steps * shape.n_envs
    return -(-min(config.training.batch_size or total, total) // program.base.shards)


def _compiled(
    program: WorkerProgram | AsyncProgram, arena: Arena, policy: nn.Module, *, rows: int
) -> WorkerProgram | AsyncProgram:
    """The program with compiled gradients if that works here: then it will in workers, and take them less time."""
    usable = usable_rows(policy, rows, lambda rows: program.compiled(rows).gradient(arena))
    return program.compiled(usable)


def _device(config: TrainConfig) -> torch.device:
    if config.run.algo != "a3c":
        return pick_device(config.run.device)
    if config.run.device not in ("auto", "cpu"):
        raise ConfigError(
            f"device={config.run.device!r}: in a3c the workers learn, each on its core. Use --device cpu, or impala."
        )
    return torch.device("cpu")


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


def _cluster(config: TrainConfig, base: WorkerProgram, undo: ExitStack) -> RayCluster:
    """Room on a Ray cluster."""
    if isinstance(config.training, DQNConfig):
        dqn_program(config, base)  # what is wrong with it is said before anything is started
    parallel = config.parallel
    cluster = RayCluster(
        address=parallel.ray_address,
        nodes=parallel.nodes,
        workers_per_node=parallel.workers_per_node,
        groups=base.shape.groups,
        timeout_s=config.env.start_timeout_s,
    )
    undo.callback(cluster.close)
    return cluster


def _layout(config: TrainConfig, program: WorkerProgram, weights: int, cluster: RayCluster | None) -> layouts.Layout:
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
    if cluster is not None:
        return layouts.Layout(
            num_workers=cluster.nodes * cluster.workers,
            env_threads=parallel.env_threads,
            runtime="ray",
            nodes=cluster.nodes,
            why=f"{cluster.nodes} node(s) with {cluster.workers} worker(s) each",
            **common,
        )
    if config.num_workers == "auto":
        total = config.run.budget_steps
        rollouts = None if total is None else total / (shape.n_steps * shape.n_envs)
        return layouts.choose(program, weights, rollouts=rollouts, common=common)
    # Sequential is one env after another, unless threads are asked for.
    sequential = config.num_workers == 0 and parallel.env_threads == "auto"
    env_threads = 1 if sequential else parallel.env_threads
    runtime = "process" if config.num_workers else "inline"
    return layouts.Layout(
        num_workers=config.num_workers, env_threads=env_threads, runtime=runtime, why="asked for", **common
    )


def _freight(program: AnyProgram, weights: int) -> Freight:
    """What travels, where workers do not share the driver's memory."""
    if isinstance(program, A3CProgram):
        raise ConfigError("runtime=ray: workers of a3c share their weights in place, on one machine. Use impala.")
    return ReplayFreight(program, weights) if isinstance(program, DQNProgram) else SlotFreight(program, weights)


def _runtime(
    config: TrainConfig,
    program: AnyProgram,
    arena: Arena,
    layout: layouts.Layout,
    hand: ShardedGradient | None,
    cluster: RayCluster | None,
    weights: int,
) -> Runtime:
    if cluster is not None:
        return RayRuntime(
            _freight(program, weights),
            arena,
            layout.groups,
            cluster,
            start_method=config.parallel.start_method,
            preload=PRELOAD,
            start_timeout_s=config.env.start_timeout_s,
            step_timeout_s=config.env.env_timeout_s,
            hand=hand if isinstance(program, WorkerProgram) else None,
            on_node_loss=config.parallel.on_node_loss,
        )
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
        hand=hand if isinstance(program, WorkerProgram) else None,
    )
