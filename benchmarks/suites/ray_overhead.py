"""What Ray costs: a run over two nodes of this machine against worker processes, what moves, and RLlib beside it.

    make bench-ray

Two Ray nodes with one worker each, started here, against the process runtime with two workers: both train in this
process, in turns, and rest while the other does. RLlib trains in an environment and a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

# As the command line does, before numpy and torch are loaded; and Ray's own.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np  # noqa: E402
import peer_venvs  # noqa: E402
import psutil  # noqa: E402
import ray  # noqa: E402
import results  # noqa: E402
from contestants import Contestant  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from peers.task import PPOSettings  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from sb3_ppo import SETTINGS, SHARED  # noqa: E402

from paceline.config.train_config import TrainConfig  # noqa: E402
from paceline.memory.shared import Arena, Field  # noqa: E402
from paceline.memory.worker_status import heartbeat_field  # noqa: E402
from paceline.runtime.protocol import Program, Share, run_all  # noqa: E402
from paceline.runtime.ray.cluster import RayCluster  # noqa: E402
from paceline.runtime.ray.runtime import RayRuntime  # noqa: E402
from paceline.runtime.ray.transfer import Did, Held  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.training import Training  # noqa: E402

HERE = Path(__file__).parent
NODES = 2
STORE_BYTES = 150 * 2**20
"""Object store of each node."""

BUSY = {"env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 1.0}, "n_envs": 32, "n_steps": 64, "quiet": True}
ON_RAY = {"runtime": "ray", "ray_address": "auto", "nodes": NODES, "workers_per_node": 1}


@contextmanager
def cluster() -> Iterator[None]:
    """Two nodes on this machine, and this process connected to them."""
    small = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=small)
    try:
        for _ in range(NODES - 1):
            made.add_node(**small)
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def iterate(training: Training, seconds: float) -> float:
    """Steps per second of whole iterations, for at least so long."""
    steps, began = training.tracker.steps, perf_counter()
    while perf_counter() - began < seconds:
        training.driver.iterate()
    return (training.tracker.steps - steps) / (perf_counter() - began)


def against_processes(rounds: int, window_s: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Steps per second of both, in turns; and bytes per step: moved, and of the slots."""
    with ExitStack() as stack:
        sides = {}
        for name, own in (("processes", {"num_workers": NODES}), ("ray", ON_RAY)):
            sides[name] = training = build(TrainConfig.from_flat(**BUSY, **own))
            stack.callback(training.close)
            training.rollouts.reset()
            iterate(training, 0.0)  # loads kernels, touches every page
        runtime, slots = sides["ray"].runtime, sides["ray"].rollouts._slots
        moved, steps = runtime.bytes_up, sides["ray"].tracker.steps
        found = results.in_turns({name: partial(iterate, one, window_s) for name, one in sides.items()}, rounds)
        moved, steps = runtime.bytes_up - moved, sides["ray"].tracker.steps - steps
        fields = [field for field in slots.shape.fields() if not field.name.startswith("final")]
        held = sum(field.nbytes for field in fields) / (slots.shape.n_steps * slots.shape.n_envs)
    return found, {"moved": moved / steps, "slots": held}


@dataclass(frozen=True)
class Broadcast:
    """A vector that goes to every worker of every node."""

    size: int

    def fields(self, held: Held, workers: int) -> list[Field]:
        """Room for it."""
        return [Field.of("weights", (self.size,), np.float32), heartbeat_field(workers)]

    def program(self, held: Held) -> Program[Reader]:
        """Reads it."""
        return Reader

    def loads(self, command: str) -> tuple[str, ...]:
        """Before it is read."""
        return ("weights",) if command == "read" else ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """Each time anew."""
        return command

    def down(self, load: str, arena: Arena, held: Held | None, crew: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """All of it."""
        yield arena["weights"]

    def up(self, did: Did, arena: Arena, held: Held | None, crew: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """Nothing comes back."""
        yield from ()

    def trimmed(self, command: str, args: tuple[Any, ...], crew: Sequence[Share]) -> tuple[Any, ...]:
        """All arguments."""
        return args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """Nothing is."""


class Reader:
    """Looks at the vector."""

    def __init__(self, arena: Arena, share: Share) -> None:
        self._weights = arena["weights"]

    def read(self) -> tuple[float, float]:
        """Its first and its last value: it is here."""
        return float(self._weights[0]), float(self._weights[-1])

    def check(self) -> tuple[float, float]:
        """Its least and its greatest value: it is all there."""
        return float(self._weights.min()), float(self._weights.max())

    def answer(self) -> None:
        """A round trip with nothing to carry."""

    def close(self) -> None:
        """Nothing to let go of."""


def settle(limit_s: float = 30.0) -> None:
    """Wait until the spare processes are up that Ray starts when an actor has taken one."""
    deadline = perf_counter() + limit_s
    while psutil.cpu_percent(interval=1.0) > results.BUSY_PERCENT and perf_counter() < deadline:
        pass


def broadcast(size: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the driver's vector until the workers of both nodes have it; and of a bare round trip.

    Apart from that, as `first`, until as much was sent as an object store holds: fresh memory takes longer.
    """
    freight = Broadcast(size)
    arena = Arena.create(freight.fields(Held(0, NODES), NODES))
    room = RayCluster(address="auto", nodes=NODES, workers_per_node=1, groups=NODES)
    runtime = RayRuntime(freight, arena, NODES, room)
    found: dict[str, list[float]] = {"read": [], "first": [], "answer": []}
    fresh = STORE_BYTES // (4 * size) + 1
    settle()
    try:
        for number in range(fresh + rounds):
            arena["weights"][:] = number + 1
            for command, call in (("read", Reader.read), ("answer", Reader.answer)):
                began = perf_counter()
                said: list[Any] = run_all(runtime, call)
                took_ms = 1e3 * (perf_counter() - began)
                expected = [(number + 1.0, number + 1.0)] * NODES
                if command == "read" and not said == expected == run_all(runtime, Reader.check):
                    raise SystemExit(f"workers have read {said} in round {number}")
                if number >= fresh or command == "read":
                    found[command if number >= fresh else "first"].append(took_ms)
    finally:
        runtime.close()
        arena.close()
    return found


def against_rllib(rounds: int, window_s: float) -> dict[str, list[float]]:
    """Steps per second on CartPole: ours over Ray with two workers, and RLlib's PPO with two env runners."""
    if reason := peer_venvs.build("rllib"):
        raise SystemExit(f"the environment of rllib cannot be built: {reason}")
    ppo = {name: SHARED[name] for name in PPOSettings.__dataclass_fields__ if name in SHARED}
    task = {
        "env": SETTINGS["env"], "env_kwargs": {}, "n_envs": SETTINGS["n_envs"], "image": False,
        "ppo": asdict(PPOSettings(**ppo)), "variant": {"runners": NODES}, "seed": 0, "solve_at": None, "config": None,
    }  # fmt: skip
    ours = {**SETTINGS, "ours": {"num_workers": "auto", "runtime": "ray", "workers_per_node": NODES}}
    commands: dict[str, tuple[list[str], list[Path]]] = {
        "paceline": ([sys.executable, str(HERE / "windows_paceline.py"), json.dumps(ours)], [HERE]),
        "rllib": (
            [str(peer_venvs.python_of("rllib")), str(HERE / "peers" / "run_rllib.py"), json.dumps(task)],
            [HERE, HERE / "peers"],
        ),
    }
    with ExitStack() as stack:
        alive: dict[str, Callable[[], float]] = {}
        for name, (command, path) in commands.items():
            log = results.LOGS / f"ray-{name}.log"
            one = stack.enter_context(Contestant(command, log=log, path=path))
            one.answer()
            one.window(0.0)
            alive[name] = partial(_rate, one, window_s)
        return results.in_turns(alive, rounds)


def _rate(contestant: Contestant, seconds: float) -> float:
    return contestant.window(seconds).rate


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=7)
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters that are sent to the nodes")
    parser.add_argument("--no-rllib", action="store_true", help="leave RLlib out; nothing is kept then")
    args = parser.parse_args()
    before = results.Calm.now()
    rounds, window_s = (1, 0.1) if args.quick else (args.rounds, 4.0)
    with cluster():
        rates, moved = against_processes(rounds, window_s)
        sent = broadcast(args.size, 5 if args.quick else 100)
    peers = {} if args.no_rllib else against_rllib(rounds, window_s)
    share, spread = results.ratio(rates["ray"], rates["processes"])
    sent_ms, around_ms = results.median_spread(sent["read"])
    first_ms, bare_ms = (results.median_spread(sent[name])[0] for name in ("first", "answer"))
    extra = moved["moved"] / moved["slots"] - 1
    rows = [
        ["2 nodes x 1 worker against 2 worker processes, Busy 1 ms", results.shown(share, spread), ">= 0.90"],
        [
            "bytes moved per step",
            f"{moved['moved']:.1f} ({moved['slots']:.1f} in the slots, {extra:+.1%})",
            "within 5 %",
        ],
        [
            f"{args.size:,} parameters to 2 nodes",
            f"{sent_ms:.1f} ± {around_ms:.1f} ms (in fresh memory {first_ms:.1f} ms, round trip {bare_ms:.1f} ms)",
            "< 20 ms",
        ],
    ]
    if peers:
        ahead, around = results.ratio(peers["paceline"], peers["rllib"])
        rates |= {f"{name}, CartPole": values for name, values in peers.items()}
        rows.append(["times RLlib PPO with 2 env runners, CartPole", results.shown(ahead, around), ">= 3"])
    body = (
        results.table(["what", "measured", "target"], rows)
        + "\n\nSteps per second: "
        + ", ".join(f"{name} {results.median_spread(values)[0]:,.0f}" for name, values in rates.items())
        + "."
    )
    result = {"steps_per_s": rates, "bytes_per_step": moved, "broadcast_ms": sent}
    keep = not args.quick and bool(peers)
    results.publish("ray", "What Ray costs", body, result, results.conditions(before), keep=keep)


if __name__ == "__main__":
    main()
