"""The envs of a task alone, in the windows that the driver gives: see windows.py.

A plain loop on each core, or where envs wait a thread for each. No policy, no learning, nobody waits for anybody: no
training on these cores can be faster.
"""

from __future__ import annotations

from bare_loops import bare
from task import begin
from windows import Windows


def main() -> None:
    """Step while asked to."""
    task, stream = begin()
    run, layout = bare(task.env_maker(), task.n_envs, waits="sleep_ms" in task.env_kwargs)
    windows, steps = Windows(stream, library=layout), 0
    while windows.go_on(steps):
        steps += run()


if __name__ == "__main__":
    main()
