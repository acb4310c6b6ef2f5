"""How many worker processes a vector env gets: as many as are predicted to pay, or none.

in this process   all n envs, one after another (or in threads, where they wait)
W workers         the busiest worker's envs, and what it costs to wake W workers and to be woken by them

The first comes from a trial of one env; the last is measured on the workers themselves, once they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from paceline.envs.make_block import MOST_THREADS, EnvThreads
from paceline.envs.one_core import CAN_BIND
from paceline.vector.channel import Channel
from paceline.vector.server import Pretend
from paceline.vector.trial import StepCost

HAND_OVER_S = 4e-5
"""The least that a step costs with workers: actions out, everyone woken, results in. Where that is enough for workers
to look good, it is measured."""
PER_WORKER_S = 1e-5
"""What each of them is reckoned to add to that."""
PER_ENV_S = 1.5e-6
"""What our own Python adds to an env's step."""
PER_THREAD_S = 3.5e-5
"""What an env that is stepped in a thread of its own adds to a step (docs/adr/0011-threads-for-waiting-envs.md)."""
COLD_S = 1e-4
"""How much less CPU time an env that waits takes there than in a trial, where it finds its core asleep each time."""
MARGIN = 0.95
"""Workers must be predicted to take at most this share of one process's time."""
OWN_S = 2e-5
"""What the main process does itself in a step with workers, while they rest."""
FEWEST_ROUNDS, ROUNDS_S = 50, 0.1
PRETEND_S = 2e-3
"""Longer steps are not acted out: to be woken takes no longer after them."""
WAITING_PER_CORE = 4
"""Workers per core worth considering where envs wait."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who steps the envs."""

    num_workers: int
    env_threads: EnvThreads
    why: str
    inline_s: float = float("inf")
    """What a step would take in this process."""
    workers_s: float = 0.0
    """What it would take with workers, if handing over cost nothing."""
    waits: bool = False
    """Whether that is mostly waiting."""

    def pays(self, hand_over_s: float) -> bool:
        """Whether workers are still worth it, now that it is known what handing over costs."""
        return self.workers_s + hand_over_s < MARGIN * self.inline_s

    def without_workers(self, hand_over_s: float) -> Choice:
        """The same in this process."""
        why = (
            f"one process: a step takes {_ms(self.inline_s)}, and would take {_ms(self.workers_s)} on "
            f"{self.num_workers} workers and {_ms(hand_over_s)} to hand over"
        )
        return Choice(0, self.env_threads, why)


def choose(cost: StepCost, num_envs: int, env_threads: EnvThreads, cores: int) -> Choice:
    """Pick the number of workers.

    Args:
        cost: What a step costs.
        num_envs: How many envs.
        env_threads: What was asked for.
        cores: That may be used.
    """
    threads: EnvThreads = env_threads
    if threads == "auto":
        threads = MOST_THREADS if cost.waits else 1
    most = WAITING_PER_CORE * cores if cost.waits else cores
    predicted = {
        workers: predict(cost, num_envs, workers, threads, cores) for workers in (0, *range(2, min(num_envs, most) + 1))
    }
    best = min(predicted, key=lambda workers: predicted[workers] + workers * PER_WORKER_S)
    best = best if predicted[best] + HAND_OVER_S < MARGIN * predicted[0] else 0
    if best:
        why = f"{best} workers: a step should take {_ms(predicted[best])} instead of {_ms(predicted[0])}"
    else:
        why = f"one process: no number of workers is predicted to beat its {_ms(predicted[0])} a step"
    return Choice(best, threads, f"{why} ({num_envs} envs, {cores} cores)", predicted[0], predicted[best], cost.waits)


def hand_over_s(channel: Channel, choice: Choice) -> float:
    """What it costs to wake all workers and hear back, if they are busy in between for as long as a step takes.

    With nothing to do for them all would still be awake, their code and data at hand: half of what it costs in earnest.
    """
    workers, pretend = range(len(channel.shares)), Pretend(min(choice.workers_s, PRETEND_S), choice.waits)

    def acted_out() -> None:
        for worker in workers:
            channel.begin(worker, channel.pack(pretend))
        channel.wait(workers, at_least=len(workers), doing="start")

    # One sleeps longer than one means to.
    return max(0.0, _median_s(acted_out) - _median_s(pretend)) + OWN_S


def _median_s(do: Callable[[], None]) -> float:
    times: list[float] = []
    began = perf_counter()
    while len(times) < FEWEST_ROUNDS or perf_counter() - began < ROUNDS_S:
        start = perf_counter()
        do()
        times.append(perf_counter() - start)
    return float(np.median(times))


def predict(cost: StepCost, num_envs: int, workers: int, threads: int, cores: int) -> float:
    """Seconds of a step of all envs with so many workers (0: in this process), if handing over cost nothing."""
    busiest = -(-num_envs // max(1, workers))
    # Threads that are kept on a core take turns there, whichever worker they belong to.
    in_turn = -(-num_envs // min(cores, max(1, workers))) if CAN_BIND else busiest
    wall = _row(cost, busiest, threads, in_turn)
    if workers == 0:
        return wall
    # More workers than cores share them: no step can be faster than its arithmetic.
    cpu = num_envs * (_warm_s(cost) + PER_ENV_S) / min(cores, workers)
    return max(wall, cpu)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _row(cost: StepCost, envs: int, threads: int, in_turn: int) -> float:
    """Seconds of one process for a step of its envs, where so many threads take turns."""
    together = min(threads, envs)
    if together == 1:
        return envs * (cost.wall_s + PER_ENV_S)
    rounds = -(-envs // together)
    return rounds * cost.wall_s + in_turn * max(PER_THREAD_S, _warm_s(cost))


def _warm_s(cost: StepCost) -> float:
    """CPU time of a step on a core that is awake."""
    return max(0.0, cost.cpu_s - COLD_S) if cost.waits else cost.cpu_s
