"""The ratios that must not fall, measured in about two and a half minutes.

    make bench             measure, print, keep in results/ratios.json
    make bench-check       the same, compared with baseline.json: ends with code 1 and the names of those that fell
    make bench-baseline    the same, kept as the new baseline.json, to be committed

Each is a ratio of two speeds that took turns in this run; guard.py says how much of it may be lost.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import grad
import results
from guard import Ratio, Verdict, judge

from paceline.config.train_config import TrainConfig
from paceline.insight.bench import bench

BASELINE = Path(__file__).parent / "baseline.json"
WORKERS = 2
ENVS: dict[str, dict[str, Any]] = {
    "cartpole": {"env": "CartPole-v1"},
    "busy": {"env": "paceline/Busy-v0"},
    "sleep": {"env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 2.0}},
}
RENEW = "If that is the price of something better, measure on a quiet machine and commit: make bench-baseline"
MEANING = {
    "cartpole_parallel": f"CartPole-v1, 32 envs: {WORKERS} workers over sequential",
    "cartpole_of_bare": "CartPole-v1: sequential training over one loop that only steps envs",
    "busy_parallel": f"Busy 1 ms: {WORKERS} workers over sequential",
    "busy_of_limit": f"Busy 1 ms: {WORKERS} workers over {WORKERS} loops that only step envs",
    "sleep_of_limit": f"Sleep 2 ms: {WORKERS} workers over threads that only step envs",
    "grad_mlp": f"MLP 64x64, minibatch 1024: learning on {WORKERS} workers over one thread",
    "grad_cnn": f"NatureCNN, minibatch 256: learning on {WORKERS} workers over one thread",
}
"""Every ratio, and what it is."""


def stepping(rounds: int, window_s: float, n_steps: int) -> dict[str, Ratio]:
    """Whole training: an env that costs little, one that costs much, and one that waits."""
    sides = {}
    for name, env in ENVS.items():
        config = TrainConfig.from_flat(**env, n_envs=32, n_steps=n_steps, quiet=True)
        sides[name] = bench(
            config, num_workers=WORKERS, rounds=rounds, window_s=window_s, learner=False, tick=_tell(name)
        )
    value, spread = sides["cartpole"].ratio("sequential", "limit")
    return {
        "cartpole_parallel": Ratio(*sides["cartpole"].ratio("parallel", "sequential")),
        # The limit is of as many loops as there are workers.
        "cartpole_of_bare": Ratio(value * WORKERS, spread * WORKERS),
        "busy_parallel": Ratio(*sides["busy"].ratio("parallel", "sequential")),
        "busy_of_limit": Ratio(*sides["busy"].ratio("parallel", "limit")),
        "sleep_of_limit": Ratio(*sides["sleep"].ratio("parallel", "limit")),
    }


def learning(rounds: int) -> dict[str, Ratio]:
    """Learning alone, by default settings."""
    found = {}
    for name in ("mlp", "cnn"):
        _tell(f"grad_{name}")("learning")
        sides: dict[str, dict[str, Any]] = {"one": {"grad_shards": 1}, "workers": {"num_workers": WORKERS}}
        with grad.contestants(grad.NETWORKS[name], sides) as updates:
            times = results.in_turns(updates, rounds)
        found[f"grad_{name}"] = Ratio(*results.ratio(times["one"], times["workers"]))
    return found


def main() -> int:
    """Measure, keep, and compare if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--check", action="store_true", help="compare with baseline.json")
    parser.add_argument("--renew", action="store_true", help="write baseline.json")
    args = parser.parse_args()
    baseline = _read(BASELINE) if args.check else {}
    before = results.Calm.now()
    if args.quick:
        measured = {**stepping(1, 0.1, 8), **learning(1)}
    else:
        measured = {**stepping(args.rounds, 2.0, 128), **learning(args.rounds)}
    machine = results.conditions(before)
    plain = {"ratios": {name: {"value": one.value, "spread": one.spread} for name, one in measured.items()}}
    rows = [[MEANING[name], f"`{name}`", results.shown(one.value, one.spread)] for name, one in measured.items()]
    body = results.table(["what", "name", "ratio"], rows)
    kept = results.publish("ratios", "The ratios that must not fall", body, plain, machine, keep=not args.quick)
    if args.renew:
        if kept != results.RESULTS:
            print("baseline.json: not written, see above.")
            return 1
        BASELINE.write_text(json.dumps({**plain, "machine": machine}, indent=2) + "\n")
        print(f"baseline.json: written with {len(measured)} ratios. Commit it.")
    return _compare(judge(baseline, measured)) if args.check else 0


def _compare(verdicts: list[Verdict]) -> int:
    """Print the table; 1 if something fell."""
    rows = [[v.name, _cell(v.was), _cell(v.now), f"{v.floor:.2f}", _word(v)] for v in verdicts]
    print(results.table(["ratio", "baseline", "now", "at least", ""], rows))
    fell = [verdict.name for verdict in verdicts if verdict.fell]
    if not fell:
        return 0
    print(f"\nFell: {', '.join(fell)}. On a busy machine, measure again. {RENEW}")
    return 1


def _cell(ratio: Ratio | None) -> str:
    return "-" if ratio is None else results.shown(ratio.value, ratio.spread)


def _word(verdict: Verdict) -> str:
    return "new: make bench-baseline" if verdict.was is None else "FELL" if verdict.fell else "ok"


def _read(path: Path) -> dict[str, Ratio]:
    if not path.exists():
        raise SystemExit(f"{path.name}: there is none to compare with. Run make bench-baseline on a quiet machine.")
    return {name: Ratio(**one) for name, one in json.loads(path.read_text())["ratios"].items()}


def _tell(name: str) -> Any:
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
