"""Do workers speed up gradients? Learning on one thread, on two torch threads, and on two workers that share shards.

    make bench-grad

The benchmark times `learner.update` on a batch that was collected once, so advantages, shuffling and the optimiser's
step are included. All variants are interleaved in one run. The baseline of the ratios is one thread that computes each
minibatch as a whole.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.minibatches import NETWORKS, updates_of

WORKERS = 2
SHARDS = (1, 2, 4, 8, 16)


def settings_of(shards: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Settings of all variants, by their names in the results."""
    return {
        "one thread": {"grad_shards": 1},
        "two torch threads": {"grad_shards": 1, "learner_threads": 2},
        **{f"sequential, {n} shards": {"grad_shards": n} for n in shards if n > 1},
        **{f"{WORKERS} workers, {n} shards": {"grad_shards": n, "num_workers": WORKERS} for n in shards},
    }


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=9)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    args = parser.parse_args()
    before = results.MachineLoad.now()
    found: dict[str, dict[str, list[float]]] = {}
    for name in args.networks:
        shards = (1, NETWORKS[name].default_shards()) if args.quick else SHARDS
        with updates_of(NETWORKS[name], settings_of(shards)) as updates:
            found[name] = results.interleave(updates, 2 if args.quick else args.rounds)
    report(found, results.conditions(before), keep=not args.quick)


def report(found: dict[str, dict[str, list[float]]], machine: dict[str, Any], *, keep: bool) -> None:
    """Compute ratios and publish."""
    parts, summary, speedups = [], [], {}
    for name, times in found.items():
        network, one = NETWORKS[name], times["one thread"]
        default = f"{WORKERS} workers, {network.default_shards()} shards"
        speeds = {what: results.ratio(one, milliseconds) for what, milliseconds in times.items()}
        rows = [
            [
                what.replace(", 1 shards", ", whole minibatches") + (" (default)" if what == default else ""),
                "{:.2f} ± {:.2f}".format(*results.median_spread(times[what])),
                results.format_ratio(*speed),
            ]
            for what, speed in speeds.items()
        ]
        parts.append(f"**{network.title}**\n\n" + results.table(["", "ms per minibatch", "times one thread"], rows))
        best = max((what for what in speeds if what.startswith(f"{WORKERS} workers")), key=lambda what: speeds[what][0])
        speedups[name] = speeds[default][0]
        met = "" if network.target is None else f" ({'met' if speedups[name] >= network.target else 'missed'})"
        summary.append(
            [
                network.title,
                str(network.default_shards()),
                results.format_ratio(*speeds[default]),
                "-" if network.target is None else f"{network.target:g}{met}",
                f"{best.split()[2]}: {results.format_ratio(*speeds[best])}",
                results.format_ratio(*speeds["two torch threads"]),
            ]
        )
    columns = ["network", "default shards", f"{WORKERS} workers", "target", "best shards", "2 torch threads, 1 process"]
    rounds = len(next(iter(next(iter(found.values())).values())))
    body = (
        "Speed of learning, relative to one thread that computes each minibatch as a whole:\n\n"
        + "\n\n".join([results.table(columns, summary), *parts])
        + f"\n\nMedians of {rounds} interleaved measurements ± half the interquartile range."
    )
    result = {"ms_per_minibatch": found, "speedup": speedups}
    results.publish("grad", "Learning on the workers", body, result, machine, keep=keep)


if __name__ == "__main__":
    main()
