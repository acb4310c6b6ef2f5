"""Choose the number of worker processes of a vector env by predicting the time of a step.

in this process   all n envs, one after another (or in threads, if their steps wait)
W workers         the envs of the busiest worker, plus the overhead of waking W workers and waiting for their replies

A trial of one env measures the cost of a step; the wake-up overhead is measured on the workers after they have started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from paceline.envs.step_cost import EnvThreads, StepCost, threads_for
from paceline.system.one_core import CAN_BIND
from paceline.vector.channel import Channel
from paceline.vector.server import Pretend

HAND_OVER_S = 4e-5
"""Lower bound of the overhead of a step with workers: write actions, wake all, collect replies. If workers still look
faster with it, the real overhead is measured."""
PER_WORKER_S = 1e-5
"""Estimated overhead per worker."""
PER_ENV_S = 1.5e-6
"""Overhead of Paceline's Python code per env step."""
PER_THREAD_S = 3.5e-5
"""Overhead per env that is stepped in a thread of its own (docs/adr/0011-threads-for-waiting-envs.md)."""
COLD_S = 1e-4
"""CPU time to subtract from a waiting env's step as measured in a trial, where the core goes idle in every wait."""
MARGIN = 0.95
"""Use workers only if the predicted step takes at most this fraction of one process's time."""
OWN_S = 2e-5
"""Work of the main process in a step with workers, while they are idle."""
FEWEST_ROUNDS, ROUNDS_S = 50, 0.1
"""Measure the overhead for at least this many rounds and seconds."""
PRETEND_S = 2e-3
"""Longest simulated step when measuring the overhead: waking a worker takes no longer after longer steps."""
WAITING_PER_CORE = 4
"""Most workers per core to consider for envs that wait."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Number of workers and threads, with the prediction behind it."""

    num_workers: int
    env_threads: EnvThreads
    why: str
    """The reason, for the user."""
    inline_s: float = float("inf")
    """Predicted seconds of a step in this process."""
    workers_s: float = 0.0
    """Predicted seconds of a step with workers, without the wake-up overhead."""
    waits: bool = False
    """Whether the envs mostly wait instead of computing."""

    def pays(self, hand_over_s: float) -> bool:
        """Whether workers are still faster with the measured overhead."""
        return self.workers_s + hand_over_s < MARGIN * self.inline_s

    def without_workers(self, hand_over_s: float) -> Choice:
        """The choice of stepping in this process, after the measured overhead turned out too large."""
        why = (
            f"one process: a step takes {_ms(self.inline_s)}; {self.num_workers} workers would take "
            f"{_ms(self.workers_s)} plus {_ms(hand_over_s)} of wake-up overhead"
        )
        return Choice(0, self.env_threads, why)


def choose(cost: StepCost, num_envs: int, env_threads: EnvThreads, cores: int) -> Choice:
    """Choose the number of workers.

    Args:
        cost: Measured cost of an env step.
        num_envs: Number of envs.
        env_threads: The user's setting.
        cores: Cores that may be used.
    """
    threads = threads_for(num_envs, cost.wait_s, env_threads)
    most = WAITING_PER_CORE * cores if cost.waits else cores
    predicted = {
        workers: predict(cost, num_envs, workers, threads, cores) for workers in (0, *range(2, min(num_envs, most) + 1))
    }
    best = min(predicted, key=lambda workers: predicted[workers] + workers * PER_WORKER_S)
    best = best if predicted[best] + HAND_OVER_S < MARGIN * predicted[0] else 0
    if best:
        why = f"{best} workers: predicted {_ms(predicted[best])} per step instead of {_ms(predicted[0])} without"
    else:
        why = f"one process: no number of workers is predicted to be faster than {_ms(predicted[0])} per step"
    return Choice(best, threads, f"{why} ({num_envs} envs, {cores} cores)", predicted[0], predicted[best], cost.waits)


def hand_over_s(channel: Channel, choice: Choice) -> float:
    """Measure the overhead of waking all workers and waiting for their replies, with simulated steps in between.

    The simulated steps matter: without them all cores stay awake and caches warm, and the overhead looks half as large.
    """
    workers, pretend = range(len(channel.shares)), Pretend(min(choice.workers_s, PRETEND_S), choice.waits)

    def acted_out() -> None:
        for worker in workers:
            channel.begin(worker, channel.pack(pretend))
        channel.wait(workers, at_least=len(workers), doing="start")

    # Subtract the measured duration of the simulated step, not the nominal one: sleep() overshoots.
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
    """Predict the seconds of a step of all envs, without wake-up overhead; `workers=0` means in this process."""
    busiest = -(-num_envs // max(1, workers))
    # Threads bound to one core take turns there, whichever worker they belong to.
    in_turn = -(-num_envs // min(cores, max(1, workers))) if CAN_BIND else busiest
    wall = _row(cost, busiest, threads, in_turn)
    if workers == 0:
        return wall
    # With more workers than cores, the total CPU time divided by the cores is a lower bound.
    cpu = num_envs * (_warm_s(cost) + PER_ENV_S) / min(cores, workers)
    return max(wall, cpu)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _row(cost: StepCost, envs: int, threads: int, in_turn: int) -> float:
    """Seconds that one process needs for a step of its envs; `in_turn` env threads share one core."""
    together = min(threads, envs)
    if together == 1:
        return envs * (cost.wall_s + PER_ENV_S)
    rounds = -(-envs // together)
    return rounds * cost.wall_s + in_turn * max(PER_THREAD_S, _warm_s(cost))


def _warm_s(cost: StepCost) -> float:
    """CPU time of a step on a core that has not gone idle."""
    return max(0.0, cost.cpu_s - COLD_S) if cost.waits else cost.cpu_s
