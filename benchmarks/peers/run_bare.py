"""Step the envs of a task without policy, learning or barriers: an upper bound for training on these cores.

Runs a plain loop on each core, or a thread per env where envs sleep.
"""

from __future__ import annotations

from benchmarks.harness.windows import Windows
from benchmarks.peers.bare_loops import bare
from benchmarks.peers.task import read_task


def main() -> None:
    """Step in windows until the driver closes the pipe."""
    task, stream = read_task()
    run, layout = bare(task.env_maker(), task.n_envs, waits="sleep_ms" in task.env_kwargs)
    windows, steps = Windows(stream, library=layout), 0
    while windows.keep_training(steps):
        steps += run()


if __name__ == "__main__":
    main()
