"""How long does it take to send weights to workers? Publish a million parameters until four workers have read them.

    make bench-weights

The clock runs from before `Weights.publish` until every worker has replied, through the runtime of a real training,
that it saw the new version and read all of it. `in place` is a learner that works on the published vector itself;
`copied` is a learner with a vector of its own, as with workers or on a device. `round trip` is the same command without
reading. After that, real trainings show the share of an iteration in the phase `sync`.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
import torch

from benchmarks.harness import results
from paceline.config.train_config import TrainConfig
from paceline.memory.shared import Arena
from paceline.memory.weights import Weights
from paceline.memory.worker_status import heartbeat_field
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Share, run_all
from paceline.system import threads
from paceline.train.build import build

TARGET_MS, TARGET_SHARE = 2.0, 0.01


class Reader:
    """A worker's job that reads the weights."""

    def __init__(self, arena: Arena, share: Share) -> None:
        del share
        self._weights = Weights(arena)
        self._vector = arena["weights"]

    def refresh(self) -> tuple[int, float]:
        """The version of the weights, and a sum that needs all of the vector."""
        return self._weights.version, float(self._vector @ self._vector)

    def reply(self) -> None:
        """Reply without reading."""

    def close(self) -> None:
        """Nothing to close."""


def send_weights(size: int, workers: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each way to publish, interleaved."""
    threads.limit(1)  # as in a training
    arena = Arena.create([*Weights.fields(size), heartbeat_field(workers)])
    weights = Weights(arena)
    runtime = ProcessRuntime(Reader, arena, workers, workers)
    copy = torch.empty(size)
    cost_ms: dict[str, list[float]] = {"in place": [], "copied": [], "round trip": []}
    try:
        for number in range(rounds + 10):
            for name, source in (("in place", weights.vector), ("copied", copy)):
                # In place of an optimiser step; the value identifies the version.
                source.fill_(1.0 / (1.0 + weights.version % 64))
                expected = float(source @ source)
                began = perf_counter()
                version = weights.publish(source)
                seen = run_all(runtime, Reader.refresh)
                took_s = perf_counter() - began
                if any(v != version or not np.isclose(read, expected, rtol=1e-3) for v, read in seen):
                    raise SystemExit(f"workers saw {seen}, but version {version} with {expected} was published")
                if number >= 10:
                    cost_ms[name].append(took_s * 1e3)
            began = perf_counter()
            run_all(runtime, Reader.reply)
            if number >= 10:
                cost_ms["round trip"].append((perf_counter() - began) * 1e3)
    finally:
        runtime.close()
        arena.close()
    return cost_ms


def sync_share(workers: int, iterations: int) -> float:
    """Share of training time in the phase `sync`: publishing, episode statistics, and making the batch."""
    training = build(TrainConfig.from_flat(env="CartPole-v1", n_envs=32, num_workers=workers, quiet=True))
    try:
        training.rollouts.reset()
        for number in range(iterations + 2):
            if number == 2:  # warm-up: the first iterations load kernels and touch every page
                before, began = training.clock.snapshot(), perf_counter()
            training.driver.iterate()
        return training.clock.snapshot().since(before).seconds["sync"] / (perf_counter() - began)
    finally:
        training.close()


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--iterations", type=int, default=30, help="iterations of each training")
    args = parser.parse_args()
    before = results.MachineLoad.now()
    cost_ms = send_weights(args.size, args.workers, args.rounds)
    shares = {workers: sync_share(workers, args.iterations) for workers in (2, args.workers)}
    rows, quantiles = [], {}
    for name, values in cost_ms.items():
        low, middle, high = (float(q) for q in np.percentile(values, [10, 50, 90]))
        quantiles[name] = {"p10_ms": low, "median_ms": middle, "p90_ms": high}
        rows.append([name, f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"])
    body = (
        f"{args.size:,} parameters to {args.workers} workers, from publishing until the last worker has read them; "
        f"milliseconds over {args.rounds} repetitions. Target: {TARGET_MS:g} ms.\n\n"
        + results.table(["way", "10 %", "median", "90 %"], rows)
        + "\n\nShare of `sync` in an iteration of PPO (CartPole-v1, 32 envs x 128 steps, MLP 64x64): "
        + ", ".join(f"{share:.2%} with {workers} workers" for workers, share in shares.items())
        + f". Target: {TARGET_SHARE:.0%}."
    )
    result = {"size": args.size, "workers": args.workers, "hand_over": quantiles, "sync_share": shares}
    results.publish("weights", "Sending weights to workers", body, result, results.conditions(before))


if __name__ == "__main__":
    main()
