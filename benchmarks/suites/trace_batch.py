"""Which functions does one batch pass through? One iteration under `sys.setprofile`, in order of first call.

    make bench-trace                             write the traces into docs/explain/follow-one-batch.md
    python -m benchmarks.suites.trace_batch      only print them

Traces PPO in one process, PPO on two workers (the driver and one worker), IMPALA and DQN in one process. Only
functions of this package count. `lines` counts each function's source with docstring and comments.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

from benchmarks.harness.paths import ROOT, SOURCE
from paceline.config.train_config import TrainConfig
from paceline.train.build import build

SRC = SOURCE / "paceline"
PAGE = ROOT / "docs" / "explain" / "follow-one-batch.md"
SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "seed": 0, "quiet": True, "n_eval_episodes": 0}
"""Two groups of envs, one for each of two workers."""
PPO: dict[str, Any] = {
    **SMALL, "algo": "ppo", "n_steps": 64, "batch_size": 512, "n_epochs": 1, "normalize_reward": False,
}  # fmt: skip
"""One minibatch of 512 rows, which is large enough to be split into shards for the workers."""
DQN: dict[str, Any] = {
    **SMALL, "algo": "dqn", "learning_starts": 64, "buffer_size": 4096, "n_steps": 8, "batch_size": 32,
}  # fmt: skip


class Call(NamedTuple):
    """The first call of a function."""

    file: str
    """Relative to `src/paceline`."""
    name: str
    """Qualified: `Class.method`."""
    depth: int
    """Number of calling functions of this package on the stack."""
    lines: int

    @property
    def row(self) -> tuple[str, str]:
        """File and name, which identify the function."""
        return self.file, self.name


ATTEMPTS = 20
"""Trainings until the traced worker has computed a shard: driver and workers take shards as they are free."""


class TraceEnv(gym.Env[Any, Any]):
    """An env with random observations that can trace one iteration of the worker it runs in.

    Args:
        n_steps: Steps of a rollout; the trace goes from the end of the second rollout to the end of the third.
        into: File for the trace; empty for none.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (4,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, n_steps: int = 64, into: str = "") -> None:
        self._into, self._n_steps, self._count = into, n_steps, 0
        self._trace: Tracer | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed, options=options)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ARG002 - random
        """A random step; every tenth ends the episode, by truncation or termination."""
        self._count += 1
        if self._into and self._count == 2 * self._n_steps:
            self._trace = Tracer()
            sys.setprofile(self._trace)
        elif self._trace is not None and self._count == 3 * self._n_steps:
            sys.setprofile(None)
            # Each env of a worker overwrites the file; they all saw the same functions.
            Path(f"{self._into}.{os.getpid()}").write_text(json.dumps(self._trace.calls()))
            self._trace = None
        ended = self._count % 10 == 0
        return self._obs(), 1.0, ended and self._count % 20 == 0, ended and self._count % 20 != 0, {}

    def _obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


class Tracer:
    """A profile function that records the first call of each function of this package."""

    def __init__(self) -> None:
        self._seen: dict[CodeType, int] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:  # noqa: ARG002 - the interpreter's signature
        """Called by the interpreter on every call and return."""
        code = frame.f_code
        if event == "call" and code not in self._seen and code.co_filename.startswith(str(SRC)):
            self._seen[code] = _depth(frame)

    def calls(self) -> list[Call]:
        """In order of first call, depths relative to the shallowest."""
        least = min(self._seen.values(), default=0)
        return [_call(code, depth - least) for code, depth in self._seen.items() if not _is_inner(code)]


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(str(SRC))
        frame = frame.f_back
    return depth


def _is_inner(code: CodeType) -> bool:
    """Lambdas, comprehensions and generated methods are part of the function around them."""
    return code.co_name.startswith("<") or "<string>" in code.co_filename or "<locals>" in code.co_qualname


def _call(code: CodeType, depth: int) -> Call:
    lines = len(inspect.getsourcelines(code)[0])
    return Call(str(Path(code.co_filename).relative_to(SRC)), code.co_qualname, depth, lines)


@dataclass(frozen=True, slots=True)
class Trace:
    """One mode."""

    title: str
    calls: list[Call]

    def totals(self) -> dict[str, int]:
        """Number of files, functions, lines and classes."""
        return {
            "files": len({call.file for call in self.calls}),
            "functions": len(self.calls),
            "lines": sum(call.lines for call in self.calls),
            "classes": len({call.name.rpartition(".")[0] for call in self.calls} - {""}),
        }


@contextmanager
def _training(**settings: Any) -> Iterator[Any]:
    training = build(TrainConfig.from_flat(env=TraceEnv, **settings))
    try:
        training.rollouts.reset()
        yield training
    finally:
        training.close()


def trace(**settings: Any) -> list[Call]:
    """Trace the third iteration of a training in this process; the first two fill caches."""
    with _training(**settings) as training:
        training.driver.iterate()
        training.driver.iterate()
        tracer = Tracer()
        sys.setprofile(tracer)
        try:
            training.driver.iterate()
        finally:
            sys.setprofile(None)
    return tracer.calls()


def trace_worker(**settings: Any) -> list[Call]:
    """Trace one iteration inside a worker that also computes gradients."""
    for _ in range(ATTEMPTS):
        calls = _trace_worker(**settings)
        if any(call.name.endswith(".work") for call in calls):
            return calls
    raise RuntimeError(
        f"in {ATTEMPTS} trainings the driver computed all shards before the worker. Try an idle machine."
    )


def _trace_worker(**settings: Any) -> list[Call]:
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "trace"
        with _training(env_kwargs={"into": str(into)}, **settings) as training:
            for _ in range(4):
                training.driver.iterate()
        found = sorted(Path(folder).iterdir())
        if not found:
            raise RuntimeError("no worker wrote a trace")
        return [Call(*entry) for entry in json.loads(found[0].read_text())]


def traces() -> list[Trace]:
    """Trace all modes."""
    return [
        Trace("PPO, one process", trace(**PPO, num_workers=0)),
        Trace("PPO, two workers: the driver", trace(**PPO, num_workers=2)),
        Trace("PPO, two workers: a worker", trace_worker(**PPO, num_workers=2)),
        Trace("IMPALA, one process", trace(**{**PPO, "algo": "impala", "num_workers": 0})),
        Trace("DQN, one process", trace(**DQN, num_workers=0)),
    ]


def totals_table(all_traces: Iterable[Trace]) -> str:
    """A markdown table with a row per mode."""
    rows = ["| mode | files | functions | lines of these functions | classes |", "|---|--:|--:|--:|--:|"]
    for one in all_traces:
        found = one.totals()
        rows.append(
            f"| {one.title} | {found['files']} | {found['functions']} | {found['lines']:,} | {found['classes']} |"
        )
    return "\n".join(rows)


def calls_table(calls: Iterable[Call]) -> str:
    """A markdown table with a row per function, indented by depth."""
    rows = ["| function | file | lines |", "|---|---|--:|"]
    for call in calls:
        indent = "&nbsp;&nbsp;" * call.depth
        rows.append(f"| {indent}`{call.name}` | [{call.file}](../../src/paceline/{call.file}) | {call.lines} |")
    return "\n".join(rows)


def filled(page: str, all_traces: list[Trace]) -> str:
    """The page with these traces between its markers."""
    parts = {"totals": totals_table(all_traces)}
    parts |= {f"calls {number}": calls_table(one.calls) for number, one in enumerate(all_traces)}
    for name, text in parts.items():
        marker = re.compile(rf"(<!-- trace: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = marker.subn(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"{PAGE}: must have one marker <!-- trace: {name} -->, has {count}.")
    return page


def main() -> None:
    """Trace all modes; print them, and write them into the page with `--write`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="Write the traces into the page.")
    found = traces()
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    for one in found:
        print(f"\n{one.title}: {one.totals()}")
        for call in one.calls:
            print(f"{'  ' * call.depth}{call.name}  {call.file}  {call.lines}")


if __name__ == "__main__":
    main()
