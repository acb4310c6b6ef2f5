"""Choose the number of workers and env threads: measure env and policy for about a second, then predict the fastest.

The choice does not change the results of training. Sizes that would (`n_envs`, `group_size`) are settings.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from paceline.envs.step_cost import WAITING, EnvThreads, StepCost, measure_steps, threads_for
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Share
from paceline.runtime.watchdog import Watchdog
from paceline.system import threads
from paceline.train.worker_recipe import WorkerRecipe

CALIBRATION_S = 1.0
CALIBRATION_STEPS = 8
"""Steps of a measured rollout."""
FEWEST_TOGETHER = 4
"""Number of envs to measure env threads with, if there are that many."""
HAND_OVER_S = 0.0001
"""Seconds to send a command to a worker and get its reply, once per rollout (make bench-workers)."""
START_UP_S = 3.0
"""Seconds to start the workers, including the imports of the fork server (make bench-workers)."""
MARGIN = 0.97
"""A layout with more processes is chosen only if its predicted time is below this fraction of the best other one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured seconds per row, i.e. per step of each env of one group, on one thread."""

    env_s: float
    env_cpu_s: float
    inference_s: float
    """Forward of the policy for one group."""
    inference_more_s: float
    """Additional time for each further group in the same forward."""

    env_more_s: float | None = None
    """Additional time in the envs for each further group; None for that of the first, as groups step one by one."""

    threaded_s: float | None = None
    """`env_s` with a thread for each env; None if envs compute, or env threads are off."""
    threaded_more_s: float | None = None
    """Additional time for each further group. Close to `env_s` if an env holds the GIL while it waits."""

    @property
    def waits(self) -> bool:
        """Whether envs mostly wait (sleep, network) instead of computing."""
        return StepCost(self.env_s, self.env_cpu_s).waits

    @property
    def threads_pay(self) -> bool:
        """Whether env threads help: envs wait, and do not hold the GIL meanwhile."""
        return self.threaded_more_s is not None and self.threaded_more_s < WAITING * self.env_s

    def row(self, groups: int, env_threads: int = 1) -> float:
        """Wall-clock seconds of one row of `groups` groups in one process."""
        envs_s = self._envs_s(groups)
        if env_threads > 1 and self.threaded_s is not None and self.threaded_more_s is not None:
            envs_s = max(envs_s / env_threads, self.threaded_s + (groups - 1) * self.threaded_more_s)
        return envs_s + self.inference_s + (groups - 1) * self.inference_more_s

    def row_cpu(self, groups: int) -> float:
        """CPU seconds of one row of `groups` groups in one process, without env threads."""
        return self.row(groups) - self._envs_s(groups) * max(0.0, 1.0 - self.env_cpu_s / self.env_s)

    def _envs_s(self, groups: int) -> float:
        """Wall-clock seconds in the envs of `groups` groups, without env threads."""
        return self.env_s + (groups - 1) * (self.env_s if self.env_more_s is None else self.env_more_s)


@dataclass(frozen=True, slots=True)
class Layout:
    """The chosen number of workers and threads, and why. Written to `layout.json`."""

    num_workers: int
    groups: int
    group_size: int
    cores: int
    threads_per_worker: int
    learner_threads: int
    start_method: str | None
    inference: str
    why: str
    env_threads: EnvThreads = 1
    """Number of envs that a worker steps at once, the largest of all workers; `auto` until each has chosen its own."""
    env_threads_asked: EnvThreads = "auto"
    """The setting: a number, or `auto`."""
    runtime: str = "process"
    """inline, process or ray."""
    nodes: int = 1
    places: list[dict[str, Any]] | None = None
    """On a cluster: the workers and groups of each node."""
    measured: dict[str, float] | None = None
    predicted_rollout_s: dict[int, float] | None = None

    @property
    def env_wait_s(self) -> float:
        """Seconds that a step of an env waits; 0 if it was not measured."""
        if self.measured is None:
            return 0.0
        return StepCost(self.measured["env_s"], self.measured["env_cpu_s"]).wait_s / self.group_size


def measure(recipe: WorkerRecipe, weights: int, timeouts_s: tuple[float, float]) -> Cost:
    """Run the real collector of one group, and the real forward of all, for about a second.

    Raises:
        EnvHung: An env stood still for longer than a start or a step may take.
    """
    shape = recipe.shape
    envs_alone, rest = _collect(recipe, weights, 1, timeouts_s, env_threads=1)
    cost = Cost(envs_alone.wall_s, envs_alone.cpu_s, rest, _more_per_group(recipe, rest))
    if recipe.one_vector and shape.groups > 1:
        all_envs, _ = _collect(recipe, weights, shape.groups, timeouts_s, env_threads=1)
        more = max(0.0, all_envs.wall_s - cost.env_s) / (shape.groups - 1)
        return replace(cost, env_more_s=more)
    groups = min(shape.groups, -(-FEWEST_TOGETHER // shape.group_size))
    envs = groups * shape.group_size
    if not cost.waits or envs == 1 or recipe.env_threads == 1 or recipe.env.use_native(shape.group_size):
        return cost
    together, _ = _collect(recipe, weights, groups, timeouts_s, env_threads=envs)
    alone = cost.env_s / shape.group_size
    more = max(0.0, together.wall_s - alone) / (envs - 1)
    return replace(cost, threaded_s=alone + (shape.group_size - 1) * more, threaded_more_s=shape.group_size * more)


def _collect(
    recipe: WorkerRecipe, weights: int, groups: int, timeouts_s: tuple[float, float], *, env_threads: int
) -> tuple[StepCost, float]:
    """What one row of the first groups costs in the envs, and the seconds of one forward pass."""
    steps = CALIBRATION_STEPS
    small = replace(recipe, shape=replace(recipe.shape, n_steps=steps, groups=groups), env_threads=env_threads)
    inference_s: list[float] = []
    with ExitStack() as stack:
        arena = stack.enter_context(closing(Arena.create(small.fields(weights, 1))))
        dog = stack.enter_context(closing(Watchdog(arena["heartbeat"][0], *timeouts_s)))
        slots = [Slots(arena, small.shape)]
        with dog.over("start"):
            collector = stack.enter_context(
                closing(small.collector(arena, Share(0, 0, groups), slots, arena.__getitem__))
            )
            collector.reset()

        def rollout() -> float:
            with dog.over("collect"):
                times = collector.collect(steps * len(inference_s))
            inference_s.append(times.inference_s)
            return times.inference_s

        rollout()  # warm-up: first calls load kernels
        cost = measure_steps(rollout, CALIBRATION_S / 2, fewest=3, most_s=5 * CALIBRATION_S, steps_per_call=steps)
    # The lower quartile: slower forwards were mostly delayed by other processes.
    return cost, float(np.percentile(inference_s[1:], 25)) / (steps + 1)


def _more_per_group(recipe: WorkerRecipe, alone_s: float) -> float:
    """Additional seconds for each further group in a forward."""
    many = min(recipe.shape.groups, 8)
    if many == 1:
        return alone_s
    policy = recipe.policy.build(recipe.shape.spec)
    return max(0.0, _forward_s(recipe, policy, many) - _forward_s(recipe, policy, 1)) / (many - 1)


def _forward_s(recipe: WorkerRecipe, policy: Any, groups: int) -> float:
    spec, size = recipe.shape.spec, recipe.shape.group_size
    actor = recipe.actor(policy, groups)
    obs = {leaf.name: np.zeros((groups * size, *leaf.shape), leaf.dtype) for leaf in spec.obs}
    actor(obs)
    times: list[float] = []
    began = perf_counter()
    while len(times) < 3 or (perf_counter() - began < CALIBRATION_S / 8 and len(times) < 500):
        start = perf_counter()
        actor(obs)
        times.append(perf_counter() - start)
    return float(np.median(times))


def predict(cost: Cost, steps: int, groups: int, workers: int, cores: int, env_threads: int = 1) -> float:
    """Predicted seconds of a rollout with `workers` processes (0: in the driver)."""
    if workers == 0:
        return steps * cost.row(groups, env_threads)
    busiest = -(-groups // workers)
    wall = cost.row(busiest, env_threads)
    # More workers than cores share them: a rollout takes at least its CPU time divided by the cores.
    each = groups / workers
    cpu = workers * cost.row_cpu(max(1, round(each))) / min(cores, workers)
    return steps * max(wall, cpu) + workers * HAND_OVER_S


def candidates(cost: Cost, groups: int, cores: int) -> list[int]:
    """Worker counts to predict: up to the number of cores, or more if envs wait and env threads do not help.

    With env threads one worker per core is enough, because it steps some envs while others wait (docs/adr/0011).
    """
    most = 64 if cost.waits and not cost.threads_pay else cores
    return [0, *range(2, min(groups, most) + 1)]


def choose(
    recipe: WorkerRecipe,
    weights: int,
    *,
    rollouts: float | None,
    common: dict[str, Any],
    timeouts_s: tuple[float, float],
) -> Layout:
    """Measure and pick.

    Args:
        recipe: What workers would be made of.
        weights: Size of the parameter vector.
        rollouts: How many rollouts the budget allows, if known: start-up must pay for itself.
        common: The fields of `Layout` that are not chosen here.
        timeouts_s: How long a start and a step of an env may take.
    """
    shape, cores = recipe.shape, threads.core_budget()
    cost = measure(recipe, weights, timeouts_s)

    def env_threads(workers: int) -> int:
        busiest = -(-shape.groups // max(1, workers))
        return threads_for(busiest * shape.group_size, cost.threads_pay, recipe.env_threads)

    predicted = {
        workers: predict(cost, shape.n_steps, shape.groups, workers, cores, env_threads(workers))
        for workers in candidates(cost, shape.groups, cores)
    }
    best = 0
    for workers, seconds in predicted.items():
        if seconds < MARGIN * predicted[best]:
            best = workers
    why = (
        f"{best} workers: a rollout should take {predicted[best]:.3g} s instead of {predicted[0]:.3g} s in one process"
    )
    if best == 0:
        why = f"one process: no worker count is predicted to beat its {predicted[0]:.3g} s a rollout on {cores} core(s)"
    elif rollouts is not None and rollouts * (predicted[0] - predicted[best]) < START_UP_S:
        why = (
            f"one process: {best} workers would save {rollouts * (predicted[0] - predicted[best]):.1f} s over this "
            f"budget, less than the {START_UP_S:g} s it takes to start them"
        )
        best = 0
    together = env_threads(best)
    if together > 1:
        why += f"; {together} env threads {'each' if best else 'in it'}, as envs wait rather than compute"
    measured = {name: float(value) for name, value in asdict(cost).items() if value is not None}
    return Layout(
        num_workers=best,
        env_threads=together,
        why=why,
        runtime="process" if best else "inline",
        measured=measured,
        predicted_rollout_s=predicted,
        **common,
    )
