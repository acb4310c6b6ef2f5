"""How many worker processes a vector env gets: as many as are predicted to pay, or none.

in this process   all n envs, one after another (or in threads, where they wait)
W workers         the busiest worker's envs, and what it costs to wake W workers and to be woken by them
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.envs.make_block import MOST_THREADS, EnvThreads
from paceline.vector.trial import StepCost

HAND_OVER_S = 1.2e-4
"""What a step costs with workers, whatever their number: actions out, everyone woken, results in."""
PER_WORKER_S = 1.5e-5
"""What each of them adds."""
PER_ENV_S = 1.5e-6
"""What our own Python adds to an env's step."""
PER_THREAD_S = 5.5e-5
"""What an env that is stepped in a thread of its own adds to a step (docs/adr/0011-threads-for-waiting-envs.md)."""
MARGIN = 0.9
"""Workers must be predicted to take at most this share of one process's time."""
WAITING_PER_CORE = 4
"""Workers per core worth considering where envs wait."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who steps the envs."""

    num_workers: int
    env_threads: EnvThreads
    why: str


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
    best = min(predicted, key=lambda workers: predicted[workers])
    best = best if predicted[best] < MARGIN * predicted[0] else 0
    if best:
        why = f"{best} workers: a step should take {_ms(predicted[best])} instead of {_ms(predicted[0])}"
    else:
        why = f"one process: no number of workers is predicted to beat its {_ms(predicted[0])} a step"
    return Choice(best, threads, f"{why} ({num_envs} envs, {cores} cores)")


def predict(cost: StepCost, num_envs: int, workers: int, threads: int, cores: int) -> float:
    """Seconds of a step of all envs with so many workers (0: in this process)."""
    busiest = -(-num_envs // max(1, workers))
    wall = _row(cost, busiest, threads)
    if workers == 0:
        return wall
    # More workers than cores share them: no step can be faster than its arithmetic.
    cpu = num_envs * (cost.cpu_s + PER_ENV_S) / min(cores, workers)
    return max(wall, cpu) + HAND_OVER_S + workers * PER_WORKER_S


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _row(cost: StepCost, envs: int, threads: int) -> float:
    """Seconds of one process for a step of its envs."""
    together = min(threads, envs)
    if together == 1:
        return envs * (cost.wall_s + PER_ENV_S)
    rounds = -(-envs // together)
    return rounds * cost.wall_s + envs * max(PER_THREAD_S, cost.cpu_s)
