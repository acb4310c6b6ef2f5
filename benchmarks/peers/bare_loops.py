"""What the cores are worth to a vector env: one process for each, with its share of the envs and nothing around them.

    bare           a plain loop, that tells nobody anything: the limit where a step computes; where it waits, a
                   thread for each env, that waits for no other
    bare-in-step   the same, but after every step of all envs each process waits until the others are done too, as
                   everybody must who returns one batch; envs that wait are stepped by a thread each, on one core

Nobody is woken between steps, no actions come and no observations go: a vector env for a caller in a process of its
own cannot do without these.
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
"""Steps of all envs between two looks at the window's end."""

Envs = Sequence[Any]


def bare(make: Callable[[], Any], n: int, *, waits: bool = False) -> tuple[Callable[[], int], str]:
    """Processes that know nothing of each other; how to run them for a moment, and what that is called."""
    return _processes(make, n, _free_threads if waits else _free_loop)


def in_step(make: Callable[[], Any], n: int, *, waits: bool) -> tuple[Callable[[], int], str]:
    """Processes that wait for each other after every step of all envs."""
    return _processes(make, n, _waiting_loop if waits else _computing_loop)


def _processes(make: Callable[[], Any], n: int, loop: Callable[..., None]) -> tuple[Callable[[], int], str]:
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    done = context.RawArray("q", 8 * len(cores))  # a cache line each
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
    from paceline.system.timer_slack import wake_on_time  # peers load this file, too, and have none of ours

    wake_on_time()
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
        if perf_counter() >= end:  # after every env: the others wait for whoever is late
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
    gates = [os.eventfd(0, os.EFD_SEMAPHORE) for _ in range(2)]  # in turn, so that no thread passes one twice
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
        pipe.recv()  # how long is for loops that know nothing of each other: these must agree on where to end
        for _ in range(ROUNDS):
            each()
            done[own] += 1
            while min(done[::8]) < done[own]:
                os.sched_yield()
        pipe.send(ROUNDS * n)
