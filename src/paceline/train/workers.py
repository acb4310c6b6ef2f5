"""Where a config's work is done: the learner's device, the layout, the workers, and who runs the policy."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, TypeVar

import torch

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.config.dqn_settings import DQNConfig
from paceline.config.settings import ASYNC
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.inference.central import Central
from paceline.inference.server import InlineAsker, chunks_of, serve
from paceline.memory.shared import Arena
from paceline.runtime.forkserver import StartMethod, default_start_method
from paceline.runtime.inference_requests import InferenceRequests
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Job, Program, Runtime, shares
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.runtime import RayRuntime
from paceline.runtime.ray.transfer import Transfer
from paceline.runtime.start_method import check_start_method
from paceline.system import threads
from paceline.system.descriptors import make_room
from paceline.train import layout as layouts
from paceline.train.a3c_program import A3CProgram
from paceline.train.async_program import AsyncProgram
from paceline.train.dqn_program import DQNProgram
from paceline.train.program import WorkerProgram
from paceline.train.replay_transfer import ReplayTransfer
from paceline.train.rollout_transfer import RolloutTransfer
from paceline.train.start_up import PRELOAD

J = TypeVar("J", bound=Job)
AnyProgram = WorkerProgram | AsyncProgram | A3CProgram | DQNProgram
"""What workers may be handed, by algorithm."""


def learner_device(config: TrainConfig) -> torch.device:
    """Where the learner is.

    Raises:
        ConfigError: There is no such device here, or a3c cannot use it.
    """
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


def room_on_cluster(config: TrainConfig, groups: int) -> RayCluster:
    """Room for so many groups on a Ray cluster, until it is closed."""
    parallel = config.parallel
    return RayCluster(
        address=parallel.ray_address,
        nodes=parallel.nodes,
        workers_per_node=parallel.workers_per_node,
        groups=groups,
        timeout_s=config.env.start_timeout_s,
    )


def lay_out(
    config: TrainConfig, program: WorkerProgram, weights: int, cluster: RayCluster | None = None
) -> layouts.Layout:
    """How many workers, and of what."""
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
        return layouts.choose(program, weights, rollouts=rollouts, common=common, timeouts_s=config.env.timeouts_s)
    # Sequential is one env after another, unless threads are asked for.
    sequential = config.num_workers == 0 and parallel.env_threads == "auto"
    env_threads = 1 if sequential else parallel.env_threads
    runtime = "process" if config.num_workers else "inline"
    return layouts.Layout(
        num_workers=config.num_workers, env_threads=env_threads, runtime=runtime, why="asked for", **common
    )


def central_for(config: TrainConfig, groups: int, device: torch.device) -> Central | None:
    """Whether the driver runs the policy, and how."""
    parallel = config.parallel
    asked = parallel.inference == "central" or bool(parallel.inference_devices or parallel.inference_groups)
    if config.run.algo == "a3c":
        if asked:
            raise ConfigError("inference='central': in a3c each worker acts with weights of its own. Use impala.")
        return None
    if not asked and (parallel.inference == "local" or device.type == "cpu" or parallel.runtime == "ray"):
        return None
    training = config.training
    streams = isinstance(training, DQNConfig) and training.schedule == "async"
    return Central(
        groups=min(groups, parallel.inference_groups or max(1, groups // 4)),
        devices=tuple(str(pick_device(name)) for name in parallel.inference_devices) or (str(device),),
        whole=config.run.algo not in ASYNC and not streams,
        single=isinstance(training, DQNConfig) and training.plays_episodes,
    )


def start_workers(
    config: TrainConfig,
    program: AnyProgram,
    arena: Arena,
    layout: layouts.Layout,
    local_gradient: ShardedGradient | None,
    cluster: RayCluster | None,
    weights: int,
) -> Runtime[Job]:
    """The workers, on this machine or on a cluster; with central inference, and whoever answers them."""
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
            local_gradient=local_gradient if isinstance(program, WorkerProgram) else None,
            on_node_loss=config.parallel.on_node_loss,
        )
    central = program.base.central
    if central is None or isinstance(program, A3CProgram):
        return _workers(config, program, arena, layout, local_gradient)
    lanes = [lane for share in shares(layout.groups, layout.num_workers) for lane in central.lanes(share)]
    if layout.num_workers == 0:
        chunks, renew = chunks_of(program, central, arena, lanes)
        inline = _inline(config, program, arena, layout)
        inline.connect(InlineAsker(chunks, renew, arena["version"]))
        return inline
    inference_requests = InferenceRequests(arena)
    with ExitStack() as undo:
        undo.callback(inference_requests.close)
        workers = _workers(config, program, arena, layout, local_gradient, inference_requests)
        undo.callback(workers.close)
        served = serve(program, central, arena, workers, inference_requests, lanes)
        undo.pop_all()
    return served


def _freight(program: AnyProgram, weights: int) -> Transfer[Job]:
    """What nodes of a cluster are handed, told, and bring."""
    if isinstance(program, A3CProgram):
        raise TypeError("workers of a3c change shared weights in place, which needs one machine")
    return ReplayTransfer(program, weights) if isinstance(program, DQNProgram) else RolloutTransfer(program, weights)


def _inline(config: TrainConfig, program: Program[J], arena: Arena, layout: layouts.Layout) -> InlineRuntime[J]:
    return InlineRuntime(program, arena, layout.groups, config.env.timeouts_s)


def _workers(
    config: TrainConfig,
    program: Program[J],
    arena: Arena,
    layout: layouts.Layout,
    local_gradient: ShardedGradient | None,
    inference_requests: InferenceRequests | None = None,
) -> Runtime[J]:
    if layout.num_workers == 0:
        return _inline(config, program, arena, layout)
    method: StartMethod = config.parallel.start_method or default_start_method()
    check_start_method(method)
    make_room(layout.num_workers)
    cores = config.parallel.cores
    return ProcessRuntime(
        program,
        arena,
        layout.groups,
        layout.num_workers,
        start_method=method,
        preload=PRELOAD,
        cores=None if cores is None else threads.pinned_cores(cores),
        take_turns=isinstance(program, WorkerProgram) and not program.pipeline and inference_requests is None,
        start_timeout_s=config.env.start_timeout_s,
        step_timeout_s=config.env.env_timeout_s,
        local_gradient=local_gradient if isinstance(program, WorkerProgram) else None,
        inference_requests=inference_requests,
        respawns=True,
    )
