"""Is Paceline faster than other RL libraries? PPO of all libraries in one run, in alternating windows.

    make bench-peers
    python -m benchmarks.suites.against_peers --workloads cartpole --peers paceline-parallel sb3-dummy --rounds 1
    python -m benchmarks.suites.against_peers --solve

Every contestant trains in a process of its own, which is stopped during the windows of the others. results/peers.json
stores results by workload: measuring a workload again replaces its part only. All contestants of a workload are alive
at once and take about 13 GB of memory (5 GB of it SB3 Subproc); their virtual environments take 12 GB of disk.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from benchmarks.harness import peer_report, peer_venvs, results
from benchmarks.harness.contestants import Contestant, ContestantFailed
from benchmarks.harness.paths import LOGS, RESULTS, SOURCE
from benchmarks.harness.peer_table import OWN_CONFIG, PEERS, TUNED, TUNED_ENVS, WORKLOADS, Peer, Workload

SOLVED_AT = 475.0
"""CartPole counts as solved at this mean return of the last 100 episodes."""


def main() -> None:
    """Build the virtual environments, measure, and write the report."""
    args = _arguments()
    found = _stored()
    missing: dict[str, str] = found.setdefault("not_installed", {})
    peers = {name: PEERS[name] for name in args.peers}
    for venv in dict.fromkeys(peer.venv for peer in peers.values()):
        missing.pop(venv, None)
        if reason := peer_venvs.build(venv):
            missing[venv] = reason
            print(f"{venv}: cannot be installed: {reason}", flush=True)
    peers = {name: peer for name, peer in peers.items() if peer.venv not in missing}
    if args.build_only:
        return
    if args.solve:
        solvers = {name: peer for name, peer in peers.items() if peer.solves}
        found["solve"] = solve(solvers, range(args.first_seed, args.first_seed + args.seeds), args.limit_s)
        _store(found, found["solve"]["machine"])
    else:
        for name in args.workloads:
            window_s = WORKLOADS[name].window_s if args.window_s is None else args.window_s
            able = {key: peer for key, peer in peers.items() if name in peer.only}
            found["workloads"][name] = measure(name, WORKLOADS[name], able, args.rounds, window_s)
            _store(
                found, found["workloads"][name]["machine"]
            )  # after each workload, so that an interruption loses only one
    print(peer_report.page(found))


def measure(name: str, workload: Workload, peers: dict[str, Peer], rounds: int, window_s: float) -> dict[str, Any]:
    """Steps/s of all contestants on one workload, in alternating windows."""
    before = results.MachineLoad.now()
    done: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        alive: dict[str, Contestant] = {}
        for key, peer in peers.items():
            contestant = stack.enter_context(_start(key, peer, workload.task(peer, seed=0), name))
            try:
                about = contestant.read_reply()
                contestant.window(0.0)  # one iteration: loads kernels, touches every page, compiles
            except ContestantFailed as error:
                failed[key] = str(error)
                print(f"{name}: {key} failed: {error}", flush=True)
                contestant.close()
                continue
            startup_s = perf_counter() - contestant.began
            print(f"{name}: {key} is ready after {startup_s:.1f} s", flush=True)
            alive[key] = contestant
            done[key] = {
                "label": peer.label,
                "counted": peer.counted,
                **about,
                "startup_s": startup_s,
                "steps_per_s": [],
                "cores": [],
            }
        for number in range(rounds):
            # Reverse the order every round, so that a drifting machine favours no contestant.
            for key in sorted(alive, key=list(peers).index, reverse=bool(number % 2)):
                try:
                    window = alive[key].window(window_s)
                except ContestantFailed as error:
                    failed[key] = str(error)
                    alive.pop(key).close()
                    del done[key]
                    continue
                done[key]["steps_per_s"].append(window.rate)
                done[key]["cores"].append(window.cores)
                done[key]["peak_memory_mb"] = alive[key].peak_memory_mb
                print(f"{name}: round {number + 1}: {key} {window.rate:,.0f} steps/s", flush=True)
    return {
        "settings": workload.task(next(iter(peers.values())), seed=0)["ppo"],
        "n_envs": workload.n_envs,
        "rounds": rounds,
        "window_s": window_s,
        "contestants": done,
        "failed": failed,
        "machine": results.conditions(before),
    }


def solve(peers: dict[str, Peer], seeds: Sequence[int], limit_s: float) -> dict[str, Any]:
    """Seconds from the start of a process until it has solved CartPole; one process runs at a time."""
    before = results.MachineLoad.now()
    done: dict[str, dict[str, Any]] = {
        key: {"label": _solver_label(peer), "seconds": [], "steps": []} for key, peer in peers.items()
    }
    for number, seed in enumerate(seeds):
        for key in sorted(peers, key=list(peers).index, reverse=bool(number % 2)):
            with _start(key, peers[key], _solving(peers[key], seed), "solve") as contestant:
                try:
                    steps = int(contestant.read_reply(limit_s)["steps"])
                    seconds: float | None = perf_counter() - contestant.began
                except ContestantFailed as error:
                    print(f"solve: {key}, seed {seed}: not solved: {error}", flush=True)
                    done[key]["seconds"].append(None)
                    done[key]["steps"].append(None)
                    continue
            done[key]["seconds"].append(seconds)
            done[key]["steps"].append(steps)
            print(f"solve: {key}, seed {seed}: {seconds:.1f} s, {steps:,} steps", flush=True)
    return {
        "settings": TUNED,
        "n_envs": TUNED_ENVS,
        "target": SOLVED_AT,
        "limit_s": limit_s,
        "seeds": list(seeds),
        "contestants": done,
        "machine": results.conditions(before),
    }


def _solver_label(peer: Peer) -> str:
    """Paceline solves with its own config, not with the number of workers of the speed comparison."""
    if peer.venv != peer_venvs.OURS:
        return peer.label
    return f"paceline, {OWN_CONFIG.parent.name}/{OWN_CONFIG.name}" if OWN_CONFIG.exists() else "paceline"


def _solving(peer: Peer, seed: int) -> dict[str, Any]:
    ours = peer.venv == peer_venvs.OURS and OWN_CONFIG.exists()
    return {
        "env": "CartPole-v1",
        "env_kwargs": {},
        "n_envs": TUNED_ENVS,
        "image": False,
        "ppo": TUNED,
        "variant": {} if ours else peer.variant,  # Paceline uses its config file alone, as a user would
        "seed": seed,
        "solve_at": SOLVED_AT,
        "config": str(OWN_CONFIG) if ours else None,
    }


def _start(key: str, peer: Peer, task: dict[str, Any], about: str) -> Contestant:
    source = SOURCE if peer.venv == peer_venvs.OURS else None
    python = peer_venvs.python_of(peer.venv)
    return Contestant(peer.module, task, log=f"{about}-{key}.log", python=python, source=source)


def _stored() -> dict[str, Any]:
    path = RESULTS / "peers.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    return found


def _store(found: dict[str, Any], machine: dict[str, Any]) -> None:
    """Write JSON, page and picture to results/, or to .logs/ if other programs were running."""
    folder = RESULTS if machine["quiet"] else LOGS
    if not machine["quiet"]:
        print(f"Not stored in results/: other programs were running. See {folder.name}/peers.md.", flush=True)
    folder.mkdir(exist_ok=True)
    (folder / "peers.json").write_text(json.dumps(found, indent=2) + "\n")
    (folder / "peers.md").write_text(peer_report.page(found))
    peer_report.picture(found, folder / "peers.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS)
    )
    parser.add_argument("--rounds", type=int, default=5, help="windows of each contestant")
    parser.add_argument(
        "--window-s", type=float, help="seconds of a window (default: by workload); a window has at least one iteration"
    )
    parser.add_argument("--solve", action="store_true", help="measure the time to solve CartPole instead of speed")
    parser.add_argument("--seeds", type=int, default=5, help="with --solve: runs of each contestant")
    parser.add_argument(
        "--first-seed",
        type=int,
        default=100,
        help="with --solve: first seed; Paceline's config was tuned on seeds 0 to 9, so do not use those",
    )
    parser.add_argument(
        "--limit-s", type=float, default=180.0, help="with --solve: seconds after which a run counts as not solved"
    )
    parser.add_argument("--build-only", action="store_true", help="build the virtual environments and exit")
    return parser.parse_args()


if __name__ == "__main__":
    main()
