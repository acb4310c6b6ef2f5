"""Where a training runs: the learner's device, the number of workers, their processes, and central inference."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.inference.central import Central
from paceline.inference.chunks import chunks_of
from paceline.inference.server import InlineAsker, serve
from paceline.memory.shared import Arena
from paceline.runtime.forkserver import StartMethod, default_start_method
from paceline.runtime.inference_requests import InferenceRequests
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import J, Runtime, shares
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.runtime import RayRuntime
from paceline.runtime.start_method import check_start_method
from paceline.system import threads
from paceline.system.descriptors import make_room
from paceline.train import layout as layouts
from paceline.train.plan import Plan
from paceline.train.start_up import PRELOAD
from paceline.train.worker_recipe import WorkerRecipe


def learner_device(config: TrainConfig) -> torch.device:
    """The device that the learner runs on.

    Raises:
        ConfigError: torch finds no such device on this machine.
    """
    return torch.device("cpu") if config.training.workers_learn else pick_device(config.run.device)


def pick_device(name: str) -> torch.device:
    """The torch device of this name; `auto` is CUDA if present, else MPS, else the CPU.

    Raises:
        ConfigError: The name is no device, or torch finds no such device on this machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: must be cpu, cuda, cuda:N, mps or auto.") from None
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not usable.get(device.type, False):
        raise ConfigError(f"device={name!r}: torch finds no such device on this machine. Use --device auto or cpu.")
    return device


def reserve_cluster(config: TrainConfig, groups: int) -> RayCluster:
    """Reserve workers for `groups` groups on the Ray cluster of the config. The caller closes it."""
    parallel = config.parallel
    return RayCluster(
        address=parallel.ray_address,
        nodes=parallel.nodes,
        workers_per_node=parallel.workers_per_node,
        groups=groups,
        timeout_s=config.env.start_timeout_s,
    )


def layout_for(
    config: TrainConfig, recipe: WorkerRecipe, weights: int, cluster: RayCluster | None = None
) -> layouts.Layout:
    """Choose the number of workers and their threads: those of the config, or for `auto` the fastest measured ones.

    Args:
        config: All settings.
        recipe: What a worker is made of.
        weights: Number of parameters.
        cluster: The reserved workers on a Ray cluster; None for this machine.
    """
    shape, parallel = recipe.shape, config.parallel
    common: dict[str, Any] = {
        "groups": shape.groups,
        "group_size": shape.group_size,
        "cores": threads.core_budget(),
        "threads_per_worker": 1,
        "learner_threads": config.training.learner_threads,
        "start_method": parallel.start_method or default_start_method(),
        "inference": "local",
        "env_threads_asked": parallel.env_threads,
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
        return layouts.choose(recipe, weights, rollouts=rollouts, common=common, timeouts_s=config.env.timeouts_s)
    # --num-workers 0 steps one env after another, unless threads are asked for.
    sequential = config.num_workers == 0 and parallel.env_threads == "auto"
    env_threads = 1 if sequential else parallel.env_threads
    runtime = "process" if config.num_workers else "inline"
    return layouts.Layout(
        num_workers=config.num_workers, env_threads=env_threads, runtime=runtime, why="set by --num-workers", **common
    )


def central_for(config: TrainConfig, groups: int, device: torch.device) -> Central | None:
    """Settings of central inference, where the driver runs the policy for the workers; None for local inference.

    Args:
        config: All settings.
        groups: Groups of the run.
        device: The learner's device.
    """
    parallel, training = config.parallel, config.training
    if training.workers_learn:
        return None
    local = parallel.inference == "local" or device.type == "cpu" or parallel.runtime == "ray"
    if local and not parallel.asks_for_central_inference:
        return None
    return Central(
        groups=min(groups, parallel.inference_groups or max(1, groups // 4)),
        devices=tuple(str(pick_device(name)) for name in parallel.inference_devices) or (str(device),),
        whole=not training.asynchronous,
        single=training.plays_episodes,
    )


def start_workers(
    config: TrainConfig,
    plan: Plan[J],
    arena: Arena,
    layout: layouts.Layout,
    local_gradient: ShardedGradient | None,
    cluster: RayCluster | None,
    weights: int,
) -> tuple[Runtime[J], layouts.Layout]:
    """Start the workers, on this machine or on a cluster, and with central inference the inference server.

    Args:
        config: All settings.
        plan: Builds the job of each worker.
        arena: Shared memory.
        layout: Number of workers and groups.
        local_gradient: The driver's part of gradients that workers share; None if it computes none.
        cluster: The reserved workers on a Ray cluster; None for this machine.
        weights: Number of parameters.

    Returns:
        The workers, and the layout; on a cluster with the node of each worker.
    """
    if cluster is not None:
        on_cluster = RayRuntime(
            plan.transfer(weights),
            arena,
            layout.groups,
            cluster,
            start_method=config.parallel.start_method,
            preload=PRELOAD,
            start_timeout_s=config.env.start_timeout_s,
            step_timeout_s=config.env.env_timeout_s,
            local_gradient=local_gradient,
            on_node_loss=config.parallel.on_node_loss,
        )
        return on_cluster, replace(layout, places=on_cluster.places())
    central = plan.base.central
    owned = shares(layout.groups, layout.num_workers)
    lanes = [] if central is None else [lane for share in owned for lane in central.lanes(share)]
    if layout.num_workers == 0:
        inline = InlineRuntime(plan, arena, layout.groups, config.env.timeouts_s)
        if central is not None:
            chunks, renew = chunks_of(plan, central, arena, lanes)
            inline.connect(InlineAsker(chunks, renew, arena["version"]))
        return inline, layout
    method: StartMethod = config.parallel.start_method or default_start_method()
    check_start_method(method)
    make_room(layout.num_workers)
    cores = config.parallel.cores
    inference_requests = None if central is None else InferenceRequests(arena)
    with ExitStack() as undo:
        if inference_requests is not None:
            undo.callback(inference_requests.close)
        runtime: Runtime[J] = ProcessRuntime(
            plan,
            arena,
            layout.groups,
            layout.num_workers,
            start_method=method,
            preload=PRELOAD,
            cores=None if cores is None else threads.pinned_cores(cores),
            take_turns=plan.alternates and central is None,
            start_timeout_s=config.env.start_timeout_s,
            step_timeout_s=config.env.env_timeout_s,
            local_gradient=local_gradient,
            inference_requests=inference_requests,
            respawns=True,
        )
        undo.callback(runtime.close)
        if central is not None and inference_requests is not None:
            runtime = serve(plan, central, arena, runtime, inference_requests, lanes)
        undo.pop_all()
    return runtime, layout
