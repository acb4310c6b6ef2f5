"""The self-test of `paceline check`: an env, shared memory, start methods, and equal weights with 0 and 2 workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch

from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe
from paceline.errors import PacelineError
from paceline.insight.env_check import check_env
from paceline.memory.shared import Arena, Field
from paceline.memory.worker_status import heartbeat_field
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Share, run_all
from paceline.system import threads
from paceline.train.run import Run

Part = tuple[str, Callable[[], str]]


class _Mark:
    """A job that writes its worker's number into shared memory."""

    def __init__(self, arena: Arena, share: Share) -> None:
        self._cell, self._value = arena["marks"][share.worker :], share.worker + 1

    def mark(self) -> tuple[int, int]:
        """Write the number; returns the number of threads that torch and BLAS use in this worker."""
        self._cell[0] = self._value
        return torch.get_num_threads(), threads.blas_threads()

    def close(self) -> None:
        """Nothing to close."""


def parts(env: str, env_kwargs: dict[str, Any]) -> Iterator[Part]:
    """The tests in order: a name, and a function that raises on failure and returns a detail to print on success."""
    yield "torch", lambda: f"{torch.__version__}, {threads.core_budget()} core(s) to use"
    yield f"environment {env}", lambda: _environment(env, env_kwargs)
    yield f"what {env} returns, and its seed", lambda: _rules(env, env_kwargs)
    yield "shared memory", _shared_memory
    for method in multiprocessing.get_all_start_methods():
        if method != "fork":  # forking may deadlock, because this process already has threads
            yield f"start method {method}", lambda method=method: _start_method(method)  # type: ignore[misc]
    yield "same weights for 0 and 2 workers", lambda: _same_weights(env, env_kwargs)


def _shared_memory() -> str:
    size = 64 * 2**20
    with closing(Arena.create([Field.of("block", (size,), np.uint8)])) as arena:
        arena["block"][::4096] = 1
    return f"{size >> 20} MB written"


def _start_method(method: Any) -> str:
    workers = 2
    fields = [Field.of("marks", (workers,), np.int64), heartbeat_field(workers)]
    with (
        closing(Arena.create(fields)) as arena,
        closing(ProcessRuntime(_Mark, arena, workers, workers, start_method=method)) as runtime,
    ):
        used = run_all(runtime, _Mark.mark)
        if arena["marks"].tolist() != [1, 2]:
            raise PacelineError(f"workers wrote {arena['marks'].tolist()} instead of [1, 2]")
        if set(used) != {(1, 1)}:
            raise PacelineError(f"workers have (torch, BLAS) threads {used} instead of one each")
    return f"{workers} workers, one thread each"


def _environment(env: str, kwargs: dict[str, Any]) -> str:
    spec = EnvRecipe(source=env, kwargs=kwargs).probe()
    leaves = ", ".join(f"{leaf.name} {leaf.shape}" for leaf in spec.obs)
    return f"sees {leaves}, acts {spec.action.kind}"


def _rules(env: str, kwargs: dict[str, Any]) -> str:
    found = check_env(EnvRecipe(source=env, kwargs=kwargs))
    if any(one.wrong for one in found):
        raise PacelineError("\n".join(map(str, found)))
    hints = "".join(f"\nhint     {one}" for one in found)
    return f"no rule is broken{hints}"


def _same_weights(env: str, kwargs: dict[str, Any]) -> str:
    hashes = {}
    for workers in (0, 2):
        config = TrainConfig.from_flat(
            env=env,
            env_kwargs=kwargs,
            n_envs=8,
            group_size=2,
            n_steps=16,
            batch_size=64,
            total_timesteps=256,
            num_workers=workers,
            n_eval_episodes=0,
            quiet=True,
        )
        with Run(config) as run:
            hashes[workers] = run.go().weights_sha256
    if hashes[0] != hashes[2]:
        raise PacelineError(
            f"weights differ: {hashes[0][:12]} inline, {hashes[2][:12]} with 2 workers. "
            "The env may ignore its seed, or share state between instances."
        )
    return hashes[0][:12]
