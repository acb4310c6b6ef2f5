"""Did a change make Paceline slower? Seven ratios of speeds, compared with a committed baseline in under three minutes.

    make bench             measure, print, store in results/ratios.json
    make bench-check       measure and compare with results/baseline.json; exit code 1 and names if a ratio fell
    make bench-baseline    measure and write results/baseline.json, which you then commit

Each ratio compares two speeds from alternating windows of the same run. A ratio may lose what its measured spreads
explain: harness/guard.py computes the allowed loss, and the output states it with the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.guard import Ratio, Verdict, judge
from benchmarks.harness.minibatches import NETWORKS, updates_of
from benchmarks.harness.paths import RESULTS
from benchmarks.harness.settings import SPEED_PPO
from paceline.config.train_config import TrainConfig
from paceline.insight.bench import bench

BASELINE = RESULTS / "baseline.json"
WORKERS = 2
ENVS: dict[str, dict[str, Any]] = {
    "cartpole": {"env": "CartPole-v1"},
    "busy": {"env": "paceline/Busy-v0"},
    "sleep": {"env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 2.0}},
}
RENEW = "If the loss is intended, run `make bench-baseline` on an idle machine and commit the baseline."
MEANING = {
    "cartpole_parallel": f"CartPole-v1, 32 envs: {WORKERS} workers over sequential",
    "cartpole_of_bare": "CartPole-v1: sequential training over one loop that only steps envs",
    "busy_parallel": f"Busy 1 ms: {WORKERS} workers over sequential",
    "busy_of_limit": f"Busy 1 ms: {WORKERS} workers over {WORKERS} loops that only step envs",
    "sleep_of_limit": f"Sleep 2 ms: {WORKERS} workers over threads that only step envs",
    "grad_mlp": f"MLP 64x64, minibatch 1024: learning on {WORKERS} workers over one thread",
    "grad_cnn": f"NatureCNN, minibatch 256: learning on {WORKERS} workers over one thread",
}
"""What each ratio compares, by name."""


def stepping(rounds: int, window_s: float, n_steps: int) -> dict[str, Ratio]:
    """Ratios of whole trainings: a cheap env, an env that computes, and an env that sleeps."""
    sides = {}
    for name, env in ENVS.items():
        config = TrainConfig.from_flat(**{**SPEED_PPO, **env, "n_envs": 32, "n_steps": n_steps, "quiet": True})
        sides[name] = bench(
            config, num_workers=WORKERS, rounds=rounds, window_s=window_s, learner=False, tick=_progress(name)
        )
    value, spread = sides["cartpole"].ratio("sequential", "limit")
    return {
        "cartpole_parallel": Ratio(*sides["cartpole"].ratio("parallel", "sequential")),
        # `limit` is the speed of WORKERS bare loops together.
        "cartpole_of_bare": Ratio(value * WORKERS, spread * WORKERS),
        "busy_parallel": Ratio(*sides["busy"].ratio("parallel", "sequential")),
        "busy_of_limit": Ratio(*sides["busy"].ratio("parallel", "limit")),
        "sleep_of_limit": Ratio(*sides["sleep"].ratio("parallel", "limit")),
    }


def learning(rounds: int) -> dict[str, Ratio]:
    """Ratios of updates alone, with default settings."""
    found = {}
    for name in ("mlp", "cnn"):
        _progress(f"grad_{name}")("learning")
        sides: dict[str, dict[str, Any]] = {"one": {"grad_shards": 1}, "workers": {"num_workers": WORKERS}}
        with updates_of(NETWORKS[name], sides) as updates:
            times = results.interleave(updates, rounds)
        found[f"grad_{name}"] = Ratio(*results.ratio(times["one"], times["workers"]))
    return found


def main() -> int:
    """Measure and store; compare with `--check`, write the baseline with `--renew`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--check", action="store_true", help="compare with baseline.json")
    parser.add_argument("--renew", action="store_true", help="write baseline.json")
    args = parser.parse_args()
    baseline = _read(BASELINE) if args.check else {}
    before = results.MachineLoad.now()
    if args.quick:
        measured = {**stepping(1, 0.1, 8), **learning(1)}
    else:
        measured = {**stepping(args.rounds, 2.0, 128), **learning(args.rounds)}
    machine = results.conditions(before)
    plain = {"ratios": {name: {"value": one.value, "spread": one.spread} for name, one in measured.items()}}
    rows = [[MEANING[name], f"`{name}`", results.format_ratio(one.value, one.spread)] for name, one in measured.items()]
    body = results.table(["what", "name", "ratio"], rows)
    kept = results.publish("ratios", "Ratios that must not fall", body, plain, machine, keep=not args.quick)
    if args.renew:
        if kept != RESULTS:
            print("baseline.json: not written, because this run may not be stored (see above).")
            return 1
        BASELINE.write_text(json.dumps({**plain, "machine": machine}, indent=2) + "\n")
        print(f"{BASELINE.name}: written with {len(measured)} ratios. Commit it.")
    return _compare(judge(baseline, measured)) if args.check else 0


def _compare(verdicts: list[Verdict]) -> int:
    """Print what each ratio lost, what was allowed and why; returns 1 if a ratio fell."""
    rows = [
        [v.name, _cell(v.was), _cell(v.now), _percent(v.loss), f"{v.allowed.share:.1%}", v.allowed.reason, v.word]
        for v in verdicts
    ]
    print(results.table(["ratio", "baseline", "now", "loss", "allowed loss", "why", "verdict"], rows))
    fell = [verdict for verdict in verdicts if verdict.fell]
    if not fell:
        return 0
    print()
    for verdict in fell:
        print(f"{verdict.name} fell: {_cell(verdict.now)}, must be at least {verdict.minimum:.2f}.")
    print(f"If other programs were running, measure again. {RENEW}")
    return 1


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"


def _cell(ratio: Ratio | None) -> str:
    return "-" if ratio is None else results.format_ratio(ratio.value, ratio.spread)


def _read(path: Path) -> dict[str, Ratio]:
    if not path.exists():
        raise SystemExit(f"{path.name}: does not exist. Run `make bench-baseline` on an idle machine.")
    return {name: Ratio(**one) for name, one in json.loads(path.read_text())["ratios"].items()}


def _progress(name: str) -> Callable[[str], None]:
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
