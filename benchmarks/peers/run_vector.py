"""Step one vector env with random actions, in windows that the suite `vector` asks for.

python -m benchmarks.peers.run_vector '{"contender": "gymnasium-async", "workload": "cartpole", "n_envs": 32}'
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.windows import Windows, reply_stream
from benchmarks.peers.bare_loops import bare, in_step
from benchmarks.peers.busy_env import BusyEnv
from benchmarks.peers.image_env import ImageEnv

ENVS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "cartpole": partial(gym.make, "CartPole-v1"),
    "busy": partial(BusyEnv, cpu_ms=1.0),
    "sleep": partial(BusyEnv, cpu_ms=0.0, sleep_ms=2.0),
    "image": ImageEnv,
}
ACTIONS = {"cartpole": 2, "busy": 2, "sleep": 2, "image": 4}
Step = Callable[[Any], Any]
Built = tuple[Step, Callable[[], Any], str]
"""Functions that step and close the vector env, and a description of its layout."""


def paceline(make: Callable[[], Any], n: int) -> Built:
    """Paceline's `make_vec` with default settings."""
    from paceline import make_vec

    vec = make_vec(make, n)
    vec.reset(seed=0)
    return vec.step, vec.close, vec.why


def gymnasium_async(make: Callable[[], Any], n: int, **options: Any) -> Built:
    """Gymnasium's AsyncVectorEnv, with a process per env."""
    vec = gym.vector.AsyncVectorEnv([make] * n, **options)
    vec.reset(seed=0)
    return vec.step, vec.close, f"{n} processes"


def sb3_subproc(make: Callable[[], Any], n: int) -> Built:
    """SB3's SubprocVecEnv, with a process per env. Forking only makes the start faster."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    vec = SubprocVecEnv([make] * n, start_method="fork")
    vec.reset()
    return vec.step, vec.close, f"{n} processes"


def pufferlib_mp(make: Callable[[], Any], n: int) -> Built:
    """PufferLib's Multiprocessing, with a worker per core."""
    os.chdir(tempfile.mkdtemp())  # on import it creates a link in the current folder
    import pufferlib.emulation
    import pufferlib.vector

    creator = partial(pufferlib.emulation.GymnasiumPufferEnv, env_creator=make)
    workers = min(n, len(os.sched_getaffinity(0)))
    vec = pufferlib.vector.make(creator, backend=pufferlib.vector.Multiprocessing, num_envs=n, num_workers=workers)
    vec.reset(seed=0)
    return vec.step, vec.close, f"{workers} processes"


CONTENDERS: dict[str, Callable[[Callable[[], Any], int], Built]] = {
    "paceline": paceline,
    "gymnasium-async": gymnasium_async,
    "gymnasium-async-pipes": partial(gymnasium_async, shared_memory=False),
    "sb3-subproc": sb3_subproc,
    "pufferlib-mp": pufferlib_mp,
}


def main() -> None:
    """Build the vector env and step in windows until the driver closes the pipe."""
    stream, settings = reply_stream(), json.loads(sys.argv[1])
    name, workload, n = settings["contender"], settings["workload"], int(settings["n_envs"])
    steps = 0
    if name.startswith("bare"):
        make = ENVS[workload]
        run, layout = bare(make, n) if name == "bare" else in_step(make, n, waits=workload == "sleep")
        windows = Windows(stream, library=name, layout=layout)
        while windows.keep_training(steps):
            steps += run()
        return
    step, close, layout = CONTENDERS[name](ENVS[workload], n)
    windows = Windows(stream, library=name, layout=layout)
    # Drawn in advance, because drawing actions is not part of a vector env.
    batches = np.random.default_rng(0).integers(0, ACTIONS[workload], (256, n))
    while windows.keep_training(steps):
        for batch in batches[: max(1, 512 // n)]:
            step(batch)
            steps += n
    close()


if __name__ == "__main__":
    main()
