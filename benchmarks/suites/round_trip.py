"""How long does it take to wake a worker and receive its reply? eventfd, socketpair and multiprocessing's pipe.

    make bench-round-trip

Linux only (eventfd). The worker is a forked child that replies at once; `pipe` is what runtime/process.py uses.
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
    """Time the three interleaved, so that noise of the machine affects all of them, and print microseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    ways = {"eventfd": eventfds(), "socketpair": sockets(), "pipe, as used": connections()}
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=reply, args=(worker, rounds), daemon=True) for _, worker in ways.values()]
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


def reply(worker: Callable[[], object], rounds: int) -> None:
    """Run in the child: reply `rounds` times."""
    for _ in range(rounds):
        worker()


def eventfds() -> Ends:
    """One eventfd per direction, which signals without data."""
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
    """One byte per direction over a socketpair."""
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
    """A pickled command and a pickled reply over multiprocessing's pipe, with the wait of the process runtime."""
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
