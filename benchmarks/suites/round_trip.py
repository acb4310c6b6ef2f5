"""What it costs to wake a worker and hear back: eventfds, a bare socketpair, and the pipe that runtime/process.py uses.

python benchmarks/round_trip.py [--rounds 2000]

Linux only (eventfd). The worker is a forked child that answers at once; nothing else is measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import os
import select
import socket
from collections.abc import Callable
from time import perf_counter

import numpy as np

Ends = tuple[Callable[[], object], Callable[[], object]]
"""What the driver does for one round trip, and what the worker does."""


def main() -> None:
    """Time the three in turns, so that a noisy machine hits all of them, and print microseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    ways = {"eventfd": eventfds(), "socketpair": sockets(), "pipe, as used": connections()}
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=answer, args=(worker, rounds), daemon=True) for _, worker in ways.values()]
    for child in children:
        child.start()
    cost_us: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (driver, _) in ways.items():
            began = perf_counter()
            driver()
            cost_us[name].append((perf_counter() - began) * 1e6)
    for child in children:
        child.join(5)
    for name, values in cost_us.items():
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        print(f"{name:14} {middle:7.1f} us (10-90 %: {low:.1f}-{high:.1f})")


def answer(worker: Callable[[], object], rounds: int) -> None:
    """The child: as many answers as there are rounds."""
    for _ in range(rounds):
        worker()


def eventfds() -> Ends:
    """A counter each way: says that something happened, and nothing else."""
    there, back = os.eventfd(0), os.eventfd(0)
    poll = select.poll()
    poll.register(back, select.POLLIN)

    def driver() -> None:
        os.eventfd_write(there, 1)
        poll.poll(1000)
        os.eventfd_read(back)

    def worker() -> None:
        os.eventfd_read(there)
        os.eventfd_write(back, 1)

    return driver, worker


def sockets() -> Ends:
    """One byte each way."""
    ours, theirs = socket.socketpair()
    poll = select.poll()
    poll.register(ours, select.POLLIN)

    def driver() -> None:
        ours.send(b"x")
        poll.poll(1000)
        ours.recv(1)

    def worker() -> None:
        theirs.recv(1)
        theirs.send(b"x")

    return driver, worker


def connections() -> Ends:
    """A pickled command and a pickled reply over multiprocessing's pipe, a socketpair, with the runtime's own wait."""
    ours, theirs = multiprocessing.Pipe()

    def driver() -> None:
        ours.send(("collect", (0,)))
        multiprocessing.connection.wait([ours], timeout=1.0)
        ours.recv()

    def worker() -> None:
        theirs.recv()
        theirs.send(("ok", (0.1, 0.1, 0.2)))

    return driver, worker


if __name__ == "__main__":
    main()
