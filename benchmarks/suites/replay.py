"""How fast is the replay buffer? Steps written and batches drawn per second, on one core.

make bench-replay
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.harness import results
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter
from paceline.memory.rows import Row
from paceline.memory.sampling import PrioritisedSampler, Sampler, UniformSampler
from paceline.memory.shared import Arena
from paceline.spec import EnvSpec

BATCH = 256
SMALL = EnvSpec.of(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2))
ATARI = EnvSpec.of(spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(6))


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units of work per second, measured for `seconds`; `work` returns the units it did."""
    done, began = 0, perf_counter()
    while (spent := perf_counter() - began) < seconds:
        done += work()
    return done / spent


def writing(envs: int, rows: int) -> Callable[[], int]:
    """Returns a function that writes 100 small steps of `envs` envs to a buffer of `rows` rows."""
    shape = ReplayShape(spec=SMALL, rows=rows, groups=1, group_size=envs)
    writer, row, at = ReplayWriter(Arena.create(shape.fields()), shape, 0, 1), Row.blank(SMALL, envs), [0]
    age = np.zeros(envs, np.int64)

    def work() -> int:
        for t in range(at[0], at[0] + 100):
            writer.show(t, row, age)
            writer.write(t, row)
        at[0] += 100
        return 100 * envs

    return work


def drawing(
    spec: EnvSpec, items: int, *, prioritised: bool, frame_stack: int = 1, batch: int = BATCH
) -> Callable[[], int]:
    """Returns a function that draws 20 batches from a full buffer and, if prioritised, updates their priorities."""
    shape = ReplayShape(spec=spec, rows=items // 32, groups=4, group_size=8, frame_stack=frame_stack)
    memory = Arena.create(shape.fields())
    replay = Replay(memory, shape, gamma=0.99)
    memory["replay/flags"][...] = 4
    sampler: Sampler = PrioritisedSampler(replay, 0.6) if prioritised else UniformSampler(replay)
    replay.advance(0, 4, shape.rows)
    for group in range(4):
        sampler.rows_added(group)
    stream = np.random.default_rng(0)
    errors = stream.random(batch).astype(np.float32)

    def work() -> int:
        for _ in range(20):
            item, _ = sampler.draw(stream, batch, 0.5)
            replay.gather(item)
            sampler.update_priorities(item, errors)
        return 20

    return work


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    args = parser.parse_args()
    items = 10_000 if args.quick else 1_000_000
    seconds = 0.05 if args.quick else 1.0
    cells: dict[str, tuple[Callable[[], int], float | None, str]] = {
        "write small steps, 8 envs": (writing(8, items // 8), None, "steps/s"),
        "write small steps, 32 envs": (writing(32, items // 32), 1e6, "steps/s"),
        "write small steps, 128 envs": (writing(128, items // 128), 1e6, "steps/s"),
        f"draw {BATCH}, uniform": (drawing(SMALL, items, prioritised=False), 20_000, "batches/s"),
        f"draw {BATCH}, prioritised, priorities updated": (drawing(SMALL, items, prioritised=True), 3000, "batches/s"),
        "draw 32 of 84x84x4, uniform, frames stored once": (
            drawing(ATARI, items // 20, prioritised=False, frame_stack=4, batch=32),
            None,
            "batches/s",
        ),
    }
    before = results.MachineLoad.now()
    found = results.interleave(
        {name: partial(rate, work, seconds) for name, (work, _, _) in cells.items()}, 1 if args.quick else args.rounds
    )
    rows = []
    for name, rates in found.items():
        _, target, unit = cells[name]
        middle, spread = results.median_spread(rates)
        verdict = "" if target is None else f"{target:,.0f} ({'met' if middle >= target else 'missed'})"
        rows.append([name, f"{middle:,.0f} ± {spread:,.0f}", unit, verdict])
    atari = ReplayShape(spec=ATARI, rows=125_000, groups=1, group_size=8, frame_stack=4)
    body = (
        f"A replay buffer of {items:,} steps, one core:\n\n{results.table(['', 'rate', '', 'target'], rows)}\n\n"
        f"A million Atari steps of 84x84x4, frames stored once: {atari.nbytes() / 1e9:.2f} GB "
        f"({atari.nbytes() // 1_000_000:,} bytes per step; stacked frames alone would take {4 * 84 * 84:,})."
    )
    result: dict[str, Any] = {"rates": found}
    results.publish("replay", "Replay buffer", body, result, results.conditions(before), keep=not args.quick)


if __name__ == "__main__":
    main()
