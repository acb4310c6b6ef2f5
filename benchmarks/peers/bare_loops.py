"""Step envs without overhead, as an upper bound for any vector env: one process per core, with a share of the envs.

    bare           independent processes: a plain loop where steps compute, a thread per env where steps sleep
    bare-in-step   the same with a barrier over all processes after each step of all envs, which every vector env
                   needs to return one batch; envs that sleep have a thread each, all on the core of their process

The processes exchange neither actions nor observations and never block on the caller. A vector env whose caller is
another process needs both, so its speed is below these loops.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

ROUNDS = 32
"""Steps of all envs per call."""

Envs = Sequence[Any]


def bare(make: Callable[[], Any], n: int, *, waits: bool = False) -> tuple[Callable[[], int], str]:
    """Start independent processes.

    Returns:
        A function that steps for a quarter of a second and returns the number of steps, and a name of the layout.
    """
    return _processes(make, n, _free_threads if waits else _free_loop)


def in_step(make: Callable[[], Any], n: int, *, waits: bool) -> tuple[Callable[[], int], str]:
    """Start processes with a barrier after each step of all envs; returns the same as `bare`, for `ROUNDS` steps."""
    return _processes(make, n, _waiting_loop if waits else _computing_loop)


def _processes(make: Callable[[], Any], n: int, loop: Callable[..., None]) -> tuple[Callable[[], int], str]:
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    done = context.RawArray("q", 8 * len(cores))  # one cache line per process
    ends = []
    for number, core in enumerate(cores):
        ours, theirs = context.Pipe()
        args = (theirs, make, n // len(cores), done, number, core)
        context.Process(target=loop, args=args, daemon=True).start()
        ends.append(ours)

    def step() -> int:
        for end in ends:
            end.send(0.25)
        return sum(end.recv() for end in ends)

    return step, f"{len(cores)} processes"


def _made(make: Callable[[], Any], n: int) -> Envs:
    envs = [make() for _ in range(n)]
    for env in envs:
        env.reset(seed=0)
    return envs


def _step(env: Any) -> None:
    _, _, terminated, truncated, _ = env.step(0)
    if terminated or truncated:
        env.reset()


def _free_loop(pipe: Any, make: Callable[[], Any], n: int, *_: Any) -> None:
    envs = _made(make, n)
    while True:
        pipe.send(_steps_until(perf_counter() + pipe.recv(), envs))


def _free_threads(pipe: Any, make: Callable[[], Any], n: int, *_: Any) -> None:
    from paceline.system.timer_slack import (
        set_timer_slack,  # here, because environments of other libraries import this file, too
    )

    set_timer_slack()
    envs = _made(make, n)
    with ThreadPoolExecutor(n) as pool:
        while True:
            until = partial(_steps_until, perf_counter() + pipe.recv())
            pipe.send(sum(pool.map(until, ([env] for env in envs))))


def _steps_until(end: float, envs: Envs) -> int:
    steps = 0
    for env in itertools.cycle(envs):
        _step(env)
        steps += 1
        if perf_counter() >= end:  # checked after each env, so that all threads end together
            break
    return steps


def _computing_loop(pipe: Any, make: Callable[[], Any], n: int, done: Any, number: int, core: int) -> None:  # noqa: ARG001
    envs = _made(make, n)

    def each() -> None:
        for env in envs:
            _step(env)

    _in_step(pipe, each, n, done, number)


def _waiting_loop(pipe: Any, make: Callable[[], Any], n: int, done: Any, number: int, core: int) -> None:
    envs = _made(make, n)
    gates = [
        os.eventfd(0, os.EFD_SEMAPHORE) for _ in range(2)
    ]  # used alternately, so that no thread passes the same gate twice
    left, count, all_in = [0], threading.Lock(), threading.Lock()
    all_in.acquire()

    def owner(env: Any) -> None:
        os.sched_setaffinity(0, {core})
        turn = 0
        while True:
            os.read(gates[turn], 8)
            _step(env)
            turn ^= 1
            with count:
                left[0] -= 1
                last = not left[0]
            if last:
                all_in.release()

    for env in envs:
        threading.Thread(target=owner, args=(env,), daemon=True).start()
    turns = [0]

    def each() -> None:
        left[0] = n
        os.eventfd_write(gates[turns[0] % 2], n)
        turns[0] += 1
        all_in.acquire()

    _in_step(pipe, each, n, done, number)


def _in_step(pipe: Any, each: Callable[[], None], n: int, done: Any, number: int) -> None:
    own = 8 * number
    while True:
        pipe.recv()  # ignores the duration: processes with a barrier must make equal numbers of steps
        for _ in range(ROUNDS):
            each()
            done[own] += 1
            while min(done[::8]) < done[own]:
                os.sched_yield()
        pipe.send(ROUNDS * n)
