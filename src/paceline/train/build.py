"""From a config to a training that is ready to run: every part made once, in order, and wired.

env spec -> policy -> arena -> learner (weights are in the arena now) -> workers
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paceline.algos.a3c import A3CLearner
from paceline.algos.device_gradients import DeviceGradients
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import Gradients, PPOGradient, ShardedGradient, ShardedUpdate
from paceline.algos.targets import targets_for
from paceline.batch import Trajectory
from paceline.collect.history import EpisodeHistory
from paceline.config.dqn_settings import DQNConfig
from paceline.config.settings import A3CConfig, AnySettings, ImpalaConfig, PPOConfig
from paceline.config.train_config import TrainConfig
from paceline.envs.extras import TAG
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.weights import LiveWeights
from paceline.nets.compiled import usable_rows
from paceline.nets.flat import FlatParameters, bind, size_of
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.adam import FlatAdam
from paceline.ops.distributions import head_for
from paceline.runtime.protocol import Job, Runtime, shares
from paceline.runtime.ray.connection import require_ray
from paceline.runtime.ray.runtime import RayRuntime
from paceline.runtime.watchdog import watched
from paceline.spec import Shaping
from paceline.system import threads
from paceline.system.malloc import keep_freed_memory
from paceline.train import layout as layouts
from paceline.train.a3c_program import A3CProgram
from paceline.train.async_program import AsyncProgram
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.dqn_program import DQNParts, DQNProgram, dqn_parts, dqn_program
from paceline.train.evaluate import Predictor
from paceline.train.league import League, bare_game, in_league, league_recipe
from paceline.train.loop import Collector, Driver
from paceline.train.program import WorkerJob, WorkerProgram
from paceline.train.recipes import acting_head, env_recipe, policy_recipe, restarts_for, shaper_recipe
from paceline.train.rollouts import Rollouts
from paceline.train.slot_scheduler import SlotJob, SlotScheduler
from paceline.train.training import AnyDriver, Training
from paceline.train.workers import AnyProgram, central_for, lay_out, learner_device, room_on_cluster, start_workers

WORKERS_LEARN_ELSEWHERE = (A3CProgram, DQNProgram)
"""Programs whose gradients are not computed from the driver's batches."""


def build(config: TrainConfig, clock: Clock | None = None) -> Training:
    """Make everything and start the workers; envs are not reset yet.

    Raises:
        ConfigError: Something does not fit; nothing was started.
        EnvHung: An env stood still while it was tried out here.
        WorkerError: A worker could not build its envs; everything was stopped again.
    """
    clock = clock or Clock()
    if config.parallel.runtime == "ray":
        require_ray()  # before anything is started
    recipe = env_recipe(config)
    games: list[Any] = []
    with watched("start", config.env.timeouts_s, who=f"env {recipe.name!r}"):
        spec = recipe.probe(lambda env: games.append(bare_game(env)))
    shaper = shaper_recipe(config)
    if shaper is not None:
        spec = replace(spec, shaping=shaper.shaping())
    image = any(leaf.kind == "image" for leaf in spec.obs)
    config.check_groups(image=image)
    keep_freed_memory()
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
        shaper=shaper,
        on_nan=config.env.on_nan,
    )
    _check_extras(config, base)
    device = learner_device(config)
    base = replace(base, central=central_for(config, base.shape.groups, device))
    with ExitStack() as undo:
        cluster = None
        if config.parallel.runtime == "ray":
            _check_ray(config, base)
            cluster = undo.enter_context(closing(room_on_cluster(config, base.shape.groups)))
        layout = lay_out(config, replace(base, central=None), size_of(policy), cluster)
        layout = replace(layout, inference="local" if base.central is None else "central")
        base = replace(base, env_threads=layout.env_threads, env_wait_s=layout.env_wait_s)
        program = _program(config, base, training, layout)
        arena = Arena.create(program.fields(size_of(policy), layout.num_workers))
        undo.callback(arena.close)
        weights = program.weights(arena)
        # Not where workers read it meanwhile: an optimiser would wait for each cache line that they hold (ADR 0024).
        apart = device.type != "cpu" or (isinstance(program, WorkerProgram) and layout.num_workers > 0)
        vector = torch.empty_like(weights.vector, device=device) if apart else weights.vector
        FlatParameters(policy.to(device), vector)
        weights.vector.copy_(vector)
        if config.policy.compile and device.type == "cpu" and not isinstance(program, WORKERS_LEARN_ELSEWHERE):
            program = _compiled(program, arena, policy, rows=_shard_rows(config, program, arena, base.shards))
        alone = isinstance(program, WorkerProgram) and layout.num_workers == 0  # the one job has a gradient of its own
        local_gradient = None if alone or isinstance(program, WORKERS_LEARN_ELSEWHERE) else program.gradient(arena)
        runtime = start_workers(config, program, arena, layout, local_gradient, cluster, size_of(policy))
        undo.callback(runtime.close)
        if isinstance(runtime, RayRuntime):
            layout = replace(layout, places=runtime.places())
        made = _assemble(config, program, layout, arena, runtime, local_gradient, policy, vector, clock)
        undo.pop_all()
    return made


def _check_extras(config: TrainConfig, base: WorkerProgram) -> None:
    """Raise ConfigError where extras and shaping do not go with the rest."""
    spec = base.shape.spec
    if config.run.trust_env_state and (spec.extras or spec.shaping):
        raise ConfigError(
            "trust_env_state: a pickled env does not bring back what was read beside it, or what a shaper kept of the "
            "episode; replaying the episode does. Leave it out."
        )
    if base.league is not None and spec.shaping:
        raise ConfigError("shaper: in a game of two the result is the reward. Leave out the shaper.")


def _check_ray(config: TrainConfig, base: WorkerProgram) -> None:
    """Raise ConfigError where something does not fit, before anything is started on a cluster."""
    if config.run.algo == "a3c":
        raise ConfigError("runtime=ray: workers of a3c share their weights in place, on one machine. Use impala.")
    if base.central is not None:
        raise ConfigError("runtime=ray: nodes run the policy themselves. Use --inference local.")
    if isinstance(config.training, DQNConfig):
        dqn_program(config, base)


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
    runtime: Runtime[Any],  # of the jobs that `program` builds: the match below knows which those are
    local_gradient: ShardedGradient | None,
    policy: nn.Module,
    vector: Tensor,
    clock: Clock,
) -> Training:
    """The driver's own parts, around an arena and workers that are there already."""
    base, spec = program.base, program.base.shape.spec
    weights = program.weights(arena)
    mirror = base.policy.build(spec)  # acts on the CPU with the published weights, wherever learning happens
    bind(mirror, weights.vector)
    shaping = spec.shaping or Shaping(())
    tracker = EpisodeTracker(config.n_envs, shaping.parts, shaping.measures)
    reward_norm = RewardNormaliser(config.n_envs, gamma=config.training.gamma) if config.env.normalize_reward else None
    obs_norm = None if isinstance(program, DQNProgram) else base.obs_normaliser(arena.__getitem__)
    rows = base.compiled_rows
    league = None if base.league is None else League(base.league, arena, weights, tracker)
    driver: AnyDriver
    dqn: DQNParts | None = None
    match program:
        case DQNProgram():
            dqn = dqn_parts(config, program, arena, runtime, policy, vector, tracker, clock)
            driver = Driver(dqn.collector, in_league(dqn.learner, league))
        case A3CProgram():
            rollouts = _async_rollouts(config, program, arena, runtime, tracker, clock)
            optimiser, progress = program.optimiser(arena), arena["progress"]
            a3c = A3CLearner(LiveWeights(arena), weights, optimiser, rollouts.said, progress, clock, obs_norm)
            driver = Driver(rollouts, in_league(a3c, league))
        case _:
            collector: Collector[Trajectory]
            if isinstance(program, WorkerProgram):
                collector = _sync_rollouts(config, program, arena, runtime, tracker, clock, reward_norm, league)
            else:
                collector = _async_rollouts(config, program, arena, runtime, tracker, clock)
            gradients, rows = _gradients(config, program, arena, runtime, local_gradient, policy, vector, obs_norm)
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
            driver = Driver(collector, in_league(learner, league, alone=not base.pipeline))
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
        driver=driver,
        runtime=runtime,
        dqn=dqn,
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
    runtime: Runtime[Job],
    local_gradient: ShardedGradient | None,
    policy: nn.Module,
    vector: Tensor,
    obs_norm: ObsNormaliser | None,
) -> tuple[Gradients, int | None]:
    """Who computes gradients; and the rows that they are compiled for, if they are."""
    base, shards = program.base, Shards(arena)
    if vector.device.type == "cpu":
        # In async modes the workers have better things to do than shards.
        work = runtime.work if program is base or local_gradient is None else local_gradient.all
        return ShardedUpdate(work, shards, program.weights(arena).showing(vector)), base.compiled_rows
    spec, rows = base.shape.spec, base.compiled_rows
    whole = partial(PPOGradient, policy, head_for(spec.action), spec, base.rollout_settings, obs_norm)
    if config.policy.compile:
        minibatch = _shard_rows(config, program, arena, shards=1)
        rows = usable_rows(policy, minibatch, lambda rows: whole(compiled_rows=rows))
    return DeviceGradients(whole(compiled_rows=rows), program.slots(arena), shards, vector.device), rows


def _sync_rollouts(
    config: TrainConfig,
    program: WorkerProgram,
    arena: Arena,
    runtime: Runtime[WorkerJob],
    tracker: EpisodeTracker,
    clock: Clock,
    reward_norm: RewardNormaliser | None,
    league: League | None,
) -> Rollouts:
    collected, spec = Slots(arena, program.shape), program.shape.spec
    # What is read at the end of an episode stands through the next, which alone is replayed.
    lasting = {
        TAG + name: extra[-1] for name, extra in collected.extras().items() if spec.extras[name].every == "episode"
    }

    def freeze() -> None:
        program.freeze(arena)
        if league is not None:
            league.look_after(epsilon=0.0)

    return Rollouts(
        runtime,
        collected,
        tracker,
        EpisodeHistory(spec, arena["episode"], collected.shown, {**program.tags(arena), **lasting}),
        clock,
        reward_norm=reward_norm,
        learning=program.slots(arena) if program.pipeline else None,
        freeze=freeze if program.pipeline else None,
        trust_env_state=config.run.trust_env_state,
        restarts=restarts_for(config, runtime),
    )


def _async_rollouts(
    config: TrainConfig,
    program: AsyncProgram | A3CProgram,
    arena: Arena,
    runtime: Runtime[SlotJob],
    tracker: EpisodeTracker,
    clock: Clock,
) -> AsyncRollouts:
    plan, training = program.plan, program.base.rollout_settings
    scheduler = SlotScheduler(
        runtime,
        plan.slot_sets(arena),
        shares(plan.base.shape.groups, runtime.num_workers),
        arena["begun_version"],
        arena["episode"],
        tracker,
        program.weights(arena).renew,
        restarts_for(config, runtime),
    )
    batches = partial(AsyncRollouts, scheduler, plan.slots(arena), clock, batch_slots=plan.batch_slots)
    if isinstance(training, ImpalaConfig):
        return batches(max_lag=training.max_lag, on_lag=training.on_lag)
    return batches()


def _shard_rows(config: TrainConfig, program: WorkerProgram | AsyncProgram, arena: Arena, shards: int) -> int:
    """Rows of the largest of so many shards of a minibatch."""
    shape = program.slots(arena).shape
    total = shape.n_steps * shape.n_envs
    return -(-min(config.training.batch_size or total, total) // shards)


def _compiled(
    program: WorkerProgram | AsyncProgram, arena: Arena, policy: nn.Module, *, rows: int
) -> WorkerProgram | AsyncProgram:
    """The program with compiled gradients if that works here: then it will in workers, and take them less time."""
    usable = usable_rows(policy, rows, lambda rows: program.compiled(rows).gradient(arena))
    return program.compiled(usable)
