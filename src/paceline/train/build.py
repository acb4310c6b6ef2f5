"""Build all parts of a training from its config, in order, and connect them.

env spec -> worker recipe -> plan of the algorithm -> arena -> policy (its weights lie there) -> workers -> driver
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import torch

from paceline.config.train_config import TrainConfig
from paceline.envs.game import GameHost
from paceline.envs.make import EnvRecipe
from paceline.envs.shaping import ShaperRecipe
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.nets.flat import bind, move_parameters, size_of
from paceline.nets.normalise import RewardNormaliser
from paceline.ops.schedules import value_at
from paceline.runtime.protocol import Job
from paceline.runtime.ray.connection import require_ray
from paceline.runtime.watchdog import watched
from paceline.spec import EnvSpec, Shaping
from paceline.system import threads
from paceline.system.malloc import keep_freed_memory
from paceline.train.algorithms import algorithm
from paceline.train.evaluate import Predictor
from paceline.train.league import League, bare_game, league_recipe
from paceline.train.plan import DriverParts, Plan
from paceline.train.recipes import env_recipe, evaluation_recipe, policy_recipe, shaper_recipe
from paceline.train.training import Training
from paceline.train.worker_recipe import WorkerRecipe
from paceline.train.workers import central_for, layout_for, learner_device, reserve_cluster, start_workers


def build(config: TrainConfig) -> Training:
    """Build the parts of a training and start its workers. Envs are not reset yet.

    Args:
        config: All settings of the run.

    Raises:
        ConfigError: Settings do not fit together or to the env. No process is left running.
        EnvHung: An env hung while the driver made or measured one.
        WorkerError: A worker could not build its envs. All workers are stopped again.
    """
    clock = Clock()  # from here on: the start of a run counts, too
    if config.parallel.runtime == "ray":
        require_ray()  # before a process is started
    env = env_recipe(config)
    shaper = shaper_recipe(config)
    spec, game = _probe(config, env, shaper)
    evaluation = evaluation_recipe(config, spec)
    config.check_groups(image=spec.has_image)
    value_at("learning_rate", config.training.learning_rate, config.training.lr_schedule)  # before workers use it
    keep_freed_memory()
    threads.limit(1)  # as in workers, so that acting rounds in the same way; the learner raises it while it learns
    network, device = policy_recipe(config), learner_device(config)
    policy = network.build(spec)
    weights, group_size = size_of(policy), config.group_size(image=spec.has_image)
    base = WorkerRecipe(
        env=env,
        policy=network,
        shape=SlotShape(spec, config.rollout_steps, config.n_envs // group_size, group_size),
        seed=config.run.seed,
        normalize_obs=config.env.normalize_obs,
        env_threads=config.parallel.env_threads,
        league=league_recipe(config, game),
        shaper=shaper,
        on_nan=config.env.on_nan,
    )
    _check_extras(config, base)
    central = central_for(config, base.shape.groups, device)
    with ExitStack() as undo:
        cluster = None
        if config.parallel.runtime == "ray":
            if central is not None:
                raise ConfigError("runtime=ray: nodes run the policy themselves. Use --inference local.")
            cluster = undo.enter_context(closing(reserve_cluster(config, base.shape.groups)))
        layout = layout_for(config, base, weights, cluster)
        layout = replace(layout, inference="local" if central is None else "central")
        base = replace(base, env_threads=layout.env_threads, env_wait_s=layout.env_wait_s, central=central)
        plan: Plan[Job] = algorithm(config.run.algo).plan(config, base, layout)
        arena = Arena.create(plan.fields(weights, layout.num_workers))
        undo.callback(arena.close)
        published = plan.weights(arena)
        # If workers read the published vector while learning, the learner has a private one: an optimiser step in
        # shared memory would wait for each cache line that workers hold (ADR 0024).
        private = device.type != "cpu" or (plan.shares_gradients and layout.num_workers > 0)
        vector = torch.empty_like(published.vector, device=device) if private else published.vector
        move_parameters(policy.to(device), vector)
        published.vector.copy_(vector)
        local_gradient = plan.local_gradient(arena) if layout.num_workers > 0 else None
        runtime, layout = start_workers(config, plan, arena, layout, local_gradient, cluster, weights)
        undo.callback(runtime.close)
        mirror = network.build(spec)  # predicts on the CPU with the published weights, also if the learner is on a GPU
        bind(mirror, published.vector)
        shaping = spec.shaping or Shaping(())
        tracker = EpisodeTracker(config.n_envs, shaping.parts, shaping.measures)
        gamma = config.training.gamma
        parts = DriverParts(
            config=config,
            arena=arena,
            runtime=runtime,
            policy=policy,
            vector=vector,
            weights=published,
            mirror=mirror,
            obs_norm=base.obs_normaliser(arena.__getitem__),
            reward_norm=RewardNormaliser(config.n_envs, gamma=gamma) if config.env.normalize_reward else None,
            tracker=tracker,
            clock=clock,
            league=None if base.league is None else League(base.league, arena, published, tracker),
        )
        head = algorithm(config.run.algo).value_head(config, spec)
        made = Training(
            config=config,
            spec=spec,
            plan=plan,
            layout=layout,
            clock=clock,
            tracker=tracker,
            arena=arena,
            weights=published,
            driver=plan.driver(parts),
            runtime=runtime,
            predictor=Predictor(mirror, spec, parts.obs_norm, seed=config.run.seed, head=head),
            reward_norm=parts.reward_norm,
            obs_norm=parts.obs_norm,
            device=device,
            evaluation_env=evaluation,
        )
        undo.pop_all()
    return made


def _probe(config: TrainConfig, env: EnvRecipe, shaper: ShaperRecipe | None) -> tuple[EnvSpec, GameHost | None]:
    """Make one env to read its spaces; returns also the env itself if it is a two-player game."""
    games: list[GameHost | None] = []
    with watched("start", config.env.timeouts_s, who=f"env {env.name!r}"):
        spec = env.probe(lambda made: games.append(bare_game(made)))
    return spec if shaper is None else replace(spec, shaping=shaper.shaping()), games[0]


def _check_extras(config: TrainConfig, base: WorkerRecipe) -> None:
    """Raise ConfigError if extras or reward shaping are combined with a setting that does not support them."""
    spec = base.shape.spec
    if config.run.trust_env_state and (spec.extras or spec.shaping):
        raise ConfigError(
            "trust_env_state: unsupported with extras and reward shapers. A pickled env contains neither extras nor "
            "the shaper's state; replaying the episode restores both. Leave it out."
        )
    if base.league is not None and spec.shaping:
        raise ConfigError("shaper: unsupported in two-player games, whose reward is the result. Leave it out.")
