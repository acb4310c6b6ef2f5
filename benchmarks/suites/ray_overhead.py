"""What does Ray cost? Two Ray nodes on this machine against worker processes, bytes per step, and RLlib's speed.

    make bench-ray

The driver of both runtimes is this process: two Ray nodes with one worker each, and the process runtime with two
workers, in alternating windows. RLlib trains in a process and a virtual environment of its own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

# Before numpy and torch are imported, as the command line does; Ray reads its own variable on import.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np  # noqa: E402
import psutil  # noqa: E402
import ray  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from benchmarks.harness import peer_venvs, results  # noqa: E402
from benchmarks.harness.contestants import Contestant  # noqa: E402
from benchmarks.harness.settings import CARTPOLE_PPO, SAME_NAMES, SPEED_PPO  # noqa: E402
from benchmarks.peers.task import PPOSettings  # noqa: E402
from paceline.config.train_config import TrainConfig  # noqa: E402
from paceline.memory.shared import Arena, Field  # noqa: E402
from paceline.memory.worker_status import heartbeat_field  # noqa: E402
from paceline.runtime.protocol import Program, Share, run_all  # noqa: E402
from paceline.runtime.ray.cluster import RayCluster  # noqa: E402
from paceline.runtime.ray.runtime import RayRuntime  # noqa: E402
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange  # noqa: E402
from paceline.train.build import build  # noqa: E402
from paceline.train.training import Training  # noqa: E402

NODES = 2
STORE_BYTES = 150 * 2**20
"""Size of the object store of each node."""

BUSY = {
    **SPEED_PPO, "env": "paceline/Busy-v0", "env_kwargs": {"cpu_ms": 1.0}, "n_envs": 32, "n_steps": 64, "quiet": True,
}  # fmt: skip
ON_RAY = {"runtime": "ray", "ray_address": "auto", "nodes": NODES, "workers_per_node": 1}


@contextmanager
def cluster() -> Iterator[None]:
    """Start two Ray nodes on this machine and connect this process to them."""
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
    """Train whole iterations for at least `seconds`; returns steps per second."""
    steps, began = training.tracker.steps, perf_counter()
    while perf_counter() - began < seconds:
        training.driver.iterate()
    return (training.tracker.steps - steps) / (perf_counter() - began)


def against_processes(rounds: int, window_s: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Steps per second of both runtimes; and bytes per step, as sent to the driver and as stored in the slots."""
    with ExitStack() as stack:
        sides = {}
        for name, own in (("processes", {"num_workers": NODES}), ("ray", ON_RAY)):
            sides[name] = training = build(TrainConfig.from_flat(**BUSY, **own))
            stack.callback(training.close)
            training.rollouts.reset()
            iterate(training, 0.0)  # warm-up: loads kernels, touches every page
        runtime, slots = sides["ray"].runtime, sides["ray"].rollouts._slots
        moved, steps = runtime.bytes_up, sides["ray"].tracker.steps
        found = results.interleave({name: partial(iterate, one, window_s) for name, one in sides.items()}, rounds)
        moved, steps = runtime.bytes_up - moved, sides["ray"].tracker.steps - steps
        fields = [field for field in slots.shape.fields() if not field.name.startswith("final")]
        held = sum(field.nbytes for field in fields) / (slots.shape.n_steps * slots.shape.n_envs)
    return found, {"moved": moved / steps, "slots": held}


@dataclass(frozen=True)
class Broadcast:
    """A `Transfer` that sends one vector to every worker of every node."""

    size: int

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """The vector, and the heartbeats that the runtime needs."""
        return [Field.of("weights", (self.size,), np.float32), heartbeat_field(workers)]

    def program(self, held: GroupRange) -> Program[Reader]:
        """The program of the workers."""
        return Reader

    def loads(self, command: str) -> tuple[str, ...]:
        """Send the vector before `read`."""
        return ("weights",) if command == "read" else ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """A new token for every command, so that the vector is sent every time."""
        return command

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """The whole vector."""
        yield arena["weights"]

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        """Send nothing to the driver."""
        yield from ()

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """Keep all arguments."""
        return args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """Ignore it: no command here is posted."""


class Reader:
    """A worker's job that reads the vector."""

    def __init__(self, arena: Arena, share: Share) -> None:
        self._weights = arena["weights"]

    def read(self) -> tuple[float, float]:
        """The first and the last value of the vector."""
        return float(self._weights[0]), float(self._weights[-1])

    def check(self) -> tuple[float, float]:
        """The minimum and the maximum of the vector, which show that all of it has arrived."""
        return float(self._weights.min()), float(self._weights.max())

    def reply(self) -> None:
        """Reply without reading."""

    def close(self) -> None:
        """Nothing to close."""


def settle(limit_s: float = 30.0) -> None:
    """Block until the machine is idle: Ray starts spare worker processes after an actor has taken one."""
    deadline = perf_counter() + limit_s
    while psutil.cpu_percent(interval=1.0) > results.BUSY_PERCENT and perf_counter() < deadline:
        pass


def broadcast(size: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds until the workers of both nodes have read the driver's vector (`read`), and of a bare round trip.

    `first` has the measurements until the object store was filled once, which take longer because memory is fresh.
    """
    transfer = Broadcast(size)
    arena = Arena.create(transfer.fields(GroupRange(0, NODES), NODES))
    room = RayCluster(address="auto", nodes=NODES, workers_per_node=1, groups=NODES)
    runtime = RayRuntime(transfer, arena, NODES, room)
    found: dict[str, list[float]] = {"read": [], "first": [], "answer": []}
    fresh = STORE_BYTES // (4 * size) + 1
    settle()
    try:
        for number in range(fresh + rounds):
            arena["weights"][:] = number + 1
            for command, call in (("read", Reader.read), ("answer", Reader.reply)):
                began = perf_counter()
                said: list[Any] = run_all(runtime, call)
                took_ms = 1e3 * (perf_counter() - began)
                expected = [(number + 1.0, number + 1.0)] * NODES
                if command == "read" and not said == expected == run_all(runtime, Reader.check):
                    raise SystemExit(f"workers read {said} in round {number}, expected {expected}")
                if number >= fresh or command == "read":
                    found[command if number >= fresh else "first"].append(took_ms)
    finally:
        runtime.close()
        arena.close()
    return found


def against_rllib(rounds: int, window_s: float) -> dict[str, list[float]]:
    """Steps per second on CartPole: Paceline over Ray with two workers, and RLlib's PPO with two env runners."""
    rllib_python = peer_venvs.require("rllib")
    ppo = {name: SAME_NAMES[name] for name in PPOSettings.__dataclass_fields__ if name in SAME_NAMES}
    task = {
        "env": CARTPOLE_PPO["env"], "env_kwargs": {}, "n_envs": CARTPOLE_PPO["n_envs"], "image": False,
        "ppo": asdict(PPOSettings(**ppo)), "variant": {"runners": NODES}, "seed": 0, "solve_at": None, "config": None,
    }  # fmt: skip
    ours = {**CARTPOLE_PPO, "ours": {"num_workers": "auto", "runtime": "ray", "workers_per_node": NODES}}
    with ExitStack() as stack:
        sides = {
            "paceline": Contestant("benchmarks.harness.windows_paceline", ours, log="ray-paceline.log"),
            "rllib": Contestant(
                "benchmarks.peers.run_rllib", task, log="ray-rllib.log", python=rllib_python, source=None
            ),
        }
        for one in sides.values():
            stack.enter_context(one)
        for one in sides.values():
            one.read_reply()
            one.window(0.0)  # warm-up of one iteration
        return results.interleave({name: partial(_rate, one, window_s) for name, one in sides.items()}, rounds)


def _rate(contestant: Contestant, seconds: float) -> float:
    return contestant.window(seconds).rate


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=7)
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters that are sent to the nodes")
    parser.add_argument("--no-rllib", action="store_true", help="do not measure RLlib; the result is not stored then")
    args = parser.parse_args()
    before = results.MachineLoad.now()
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
        ["2 nodes x 1 worker against 2 worker processes, Busy 1 ms", results.format_ratio(share, spread), ">= 0.90"],
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
        rows.append(["times RLlib PPO with 2 env runners, CartPole", results.format_ratio(ahead, around), ">= 3"])
    body = (
        results.table(["what", "measured", "target"], rows)
        + "\n\nSteps per second: "
        + ", ".join(f"{name} {results.median_spread(values)[0]:,.0f}" for name, values in rates.items())
        + "."
    )
    result = {"steps_per_s": rates, "bytes_per_step": moved, "broadcast_ms": sent}
    keep = not args.quick and bool(peers)
    results.publish("ray", "Ray against worker processes", body, result, results.conditions(before), keep=keep)


if __name__ == "__main__":
    main()
