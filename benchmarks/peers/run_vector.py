"""One vector env in a loop of random actions, in the windows that the driver gives: see windows.py.

python run_vector.py '{"contender": "gymnasium-async", "workload": "cartpole", "n_envs": 32}'
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from busy_env import BusyEnv
from image_env import ImageEnv
from windows import Windows, answers

ENVS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "cartpole": partial(gym.make, "CartPole-v1"),
    "busy": partial(BusyEnv, cpu_ms=1.0),
    "sleep": partial(BusyEnv, cpu_ms=0.0, sleep_ms=2.0),
    "image": ImageEnv,
}
ACTIONS = {"cartpole": 2, "busy": 2, "sleep": 2, "image": 4}
Step = Callable[[Any], Any]
Built = tuple[Step, Callable[[], Any], str]
"""How to step, how to close, and what the library calls its layout."""


def paceline(make: Callable[[], Any], n: int) -> Built:
    """Ours, as it comes."""
    from paceline import make_vec

    vec = make_vec(make, n)
    vec.reset(seed=0)
    return vec.step, vec.close, vec.why


def gymnasium_async(make: Callable[[], Any], n: int, **options: Any) -> Built:
    """Gymnasium's, a process for each env."""
    vec = gym.vector.AsyncVectorEnv([make] * n, **options)
    vec.reset(seed=0)
    return vec.step, vec.close, f"{n} processes"


def sb3_subproc(make: Callable[[], Any], n: int) -> Built:
    """SB3's, a process for each env. Forked, which is the faster start and nothing else."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    vec = SubprocVecEnv([make] * n, start_method="fork")
    vec.reset()
    return vec.step, vec.close, f"{n} processes"


def pufferlib_mp(make: Callable[[], Any], n: int) -> Built:
    """PufferLib's, a worker for each core."""
    import pufferlib.emulation
    import pufferlib.vector

    creator = partial(pufferlib.emulation.GymnasiumPufferEnv, env_creator=make)
    workers = min(n, len(os.sched_getaffinity(0)))
    vec = pufferlib.vector.make(creator, backend=pufferlib.vector.Multiprocessing, num_envs=n, num_workers=workers)
    vec.reset(seed=0)
    return vec.step, vec.close, f"{workers} processes"


def bare(make: Callable[[], Any], n: int) -> Built:
    """What the cores are worth: one process for each, in a plain loop over its envs, that tells nobody anything."""
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    ends = []
    for _ in range(cores):
        ours, theirs = context.Pipe()
        context.Process(target=_bare_loop, args=(theirs, make, n // cores), daemon=True).start()
        ends.append(ours)

    def step(seconds: float) -> int:
        for end in ends:
            end.send(seconds)
        return sum(end.recv() for end in ends)

    return step, lambda: None, f"{cores} processes"


def _bare_loop(pipe: Any, make: Callable[[], Any], n: int) -> None:
    envs = [make() for _ in range(n)]
    for env in envs:
        env.reset(seed=0)
    while True:
        end, steps = perf_counter() + pipe.recv(), 0
        while perf_counter() < end:
            for env in envs:
                _, _, terminated, truncated, _ = env.step(0)
                if terminated or truncated:
                    env.reset()
            steps += n
        pipe.send(steps)


CONTENDERS: dict[str, Callable[[Callable[[], Any], int], Built]] = {
    "paceline": paceline,
    "gymnasium-async": gymnasium_async,
    "gymnasium-async-pipes": partial(gymnasium_async, shared_memory=False),
    "sb3-subproc": sb3_subproc,
    "pufferlib-mp": pufferlib_mp,
    "bare": bare,
}


def main() -> None:
    """Build, then step while asked to."""
    stream, settings = answers(), json.loads(sys.argv[1])
    name, workload, n = settings["contender"], settings["workload"], int(settings["n_envs"])
    step, close, layout = CONTENDERS[name](ENVS[workload], n)
    windows, steps = Windows(stream, library=name, layout=layout), 0
    if name == "bare":
        while windows.go_on(steps):
            steps += step(0.25)
    else:
        # Drawn before: drawing them is no part of any vector env.
        batches = np.random.default_rng(0).integers(0, ACTIONS[workload], (256, n))
        while windows.go_on(steps):
            for batch in batches[: max(1, 512 // n)]:
                step(batch)
                steps += n
    close()


if __name__ == "__main__":
    main()
