"""Do the default settings solve the standard tasks on every seed? And would other settings do better?

    make bench-defaults                                                 # today's defaults and stable-baselines3's
    make bench-defaults ARGS="--tasks pendulum --no-sb3 --try fast:learning_rate=1e-3,n_epochs=20"

Every run is a process of its own and is evaluated at its end: 50 episodes, actions without exploration. Sequential
runs stand for parallel ones, because the number of workers does not change the weights. Each result is also appended
to `.logs/defaults.jsonl`, and runs that are in it are not made again: an interrupted sweep continues.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from statistics import fmean, median
from time import perf_counter
from typing import Any

# As the command line does, before numpy and torch are loaded.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from benchmarks.harness import results  # noqa: E402
from benchmarks.harness.paths import LOGS  # noqa: E402

EPISODES = 50
DEFAULTS, THEIRS = "defaults", "stable-baselines3"
STORED = LOGS / "defaults.jsonl"


@dataclass(frozen=True, slots=True)
class Task:
    """An env, the budget that RL Baselines3 Zoo gives it, and the mean return that solves it."""

    env: str
    steps: int
    goal: float
    algo: str = "ppo"


TASKS = {
    "cartpole": Task("CartPole-v1", 100_000, 475.0),
    "acrobot": Task("Acrobot-v1", 1_000_000, -100.0),
    "pendulum": Task("Pendulum-v1", 100_000, -200.0),
    "lunarlander": Task("LunarLander-v3", 1_000_000, 200.0),
    "cartpole_dqn": Task("CartPole-v1", 50_000, 475.0, "dqn"),
    # The other end of the range: Gymnasium's threshold, 4,800, needs far more than a million steps.
    "halfcheetah": Task("HalfCheetah-v5", 1_000_000, 4800.0),
}
"""Goals are the `reward_threshold` that Gymnasium registers; Pendulum has none."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    task: str
    setting: str
    seed: int
    steps: int
    score: float
    """Mean return of the evaluation at the end."""
    solved_at: int | None
    """Steps at which the mean return of the last 100 training episodes first reached the goal."""
    seconds: float

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies the run."""
        return self.task, self.setting, self.seed, self.steps


def train(name: str, setting: str, changes: Mapping[str, Any], seed: int, steps: int) -> Result:
    """Make one run, in this process."""
    began = perf_counter()
    run = _theirs if setting.startswith(THEIRS) else _ours
    score, solved_at = run(TASKS[name], changes, seed, steps)
    return Result(name, setting, seed, steps, score, solved_at, round(perf_counter() - began, 1))


class Watch:
    """Notes when the mean return of the last 100 training episodes first reaches the goal."""

    def __init__(self, goal: float) -> None:
        self._goal = goal
        self.solved_at: int | None = None

    def on_update(self, moment: Any) -> None:
        """See `paceline.train.callbacks.Callback`."""
        if self.solved_at is None and moment.episodes >= 100 and moment.mean_return >= self._goal:
            self.solved_at = moment.steps


def _ours(task: Task, changes: Mapping[str, Any], seed: int, steps: int) -> tuple[float, int | None]:
    import paceline

    watch = Watch(task.goal)
    agent_of = {"ppo": paceline.PPO, "dqn": paceline.DQN}[task.algo]
    settings: dict[str, Any] = {"num_workers": 0, "n_eval_episodes": 0, "seed": seed, "total_timesteps": steps}
    with agent_of(task.env, **settings, **changes) as agent:
        agent.learn(callbacks=[watch])
        return agent.evaluate(EPISODES).mean_reward, watch.solved_at


def _theirs(task: Task, changes: Mapping[str, Any], seed: int, steps: int) -> tuple[float, int | None]:
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)

    class Watcher(BaseCallback):  # type: ignore[misc]  # the library is not typed
        solved_at: int | None = None

        def _on_step(self) -> bool:
            ended = self.model.ep_info_buffer
            if self.solved_at is None and len(ended) == 100 and fmean(one["r"] for one in ended) >= task.goal:
                self.solved_at = self.num_timesteps
            return True

    watch = Watcher()
    agent_of = {"ppo": stable_baselines3.PPO, "dqn": stable_baselines3.DQN}[task.algo]
    model = agent_of("MlpPolicy", make_vec_env(task.env, seed=seed), seed=seed, device="cpu", **changes)
    model.learn(steps, callback=watch)
    fresh = make_vec_env(task.env, seed=seed + 1000)
    score, _ = evaluate_policy(model, fresh, n_eval_episodes=EPISODES, deterministic=True)
    return float(score), watch.solved_at


def sweep(wanted: Sequence[tuple[str, str, Mapping[str, Any], int, int]], jobs: int) -> list[Result]:
    """Make the runs that are not stored yet, `jobs` at a time; returns all, in the order wanted."""
    done = {one.key: one for one in _stored()}
    missing = [run for run in wanted if (run[0], run[1], run[3], run[4]) not in done]
    # A process for each run: nothing of one is left for the next.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(train, *run) for run in missing]):
            one = future.result()
            done[one.key] = one
            LOGS.mkdir(exist_ok=True)
            with STORED.open("a") as file:
                file.write(json.dumps(_plain(one)) + "\n")
            print(
                f"{one.task}, {one.setting}, seed {one.seed}: {one.score:.1f}, goal reached at {one.solved_at} "
                f"({one.seconds:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
    return [done[run[0], run[1], run[3], run[4]] for run in wanted]


def _plain(one: Result) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Result.__dataclass_fields__}


def _stored() -> list[Result]:
    return [Result(**json.loads(line)) for line in STORED.read_text().splitlines()] if STORED.is_file() else []


def table(found: Sequence[Result]) -> str:
    """A row for each task and setting."""
    rows = []
    for name, setting in dict.fromkeys((one.task, one.setting) for one in found):
        mine = [one for one in found if (one.task, one.setting) == (name, setting)]
        task, scores = TASKS[name], sorted(one.score for one in mine)
        solved = sum(score >= task.goal for score in scores)
        reached = sorted(one.solved_at for one in mine if one.solved_at is not None)
        rows.append(
            [
                f"{task.env} ({task.algo.upper()}), {mine[0].steps:,} steps",
                setting,
                f"{solved} of {len(mine)}",
                f"{median(scores):,.0f}",
                f"{scores[0]:,.0f} to {scores[-1]:,.0f}",
                f"{median(reached):,.0f} ({len(reached)} of {len(mine)})" if reached else f"- (0 of {len(mine)})",
            ]
        )
    header = ["task", "settings", "solved at the end", "median score", "range", "training reached the goal at"]
    return results.table(header, rows)


def _setting(text: str) -> tuple[str, dict[str, str]]:
    name, _, changes = text.partition(":")
    return name, dict(part.split("=", 1) for part in changes.split(",") if part)


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[name for name in TASKS if name != "halfcheetah"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--share", type=float, default=1.0, help="train for this share of the budget")
    parser.add_argument("--try", action="append", default=[], type=_setting, metavar="NAME:SETTING=VALUE,...",
                        help="also try these settings")  # fmt: skip
    parser.add_argument("--no-defaults", action="store_true", help="leave out the defaults")
    parser.add_argument("--no-sb3", action="store_true", help="leave out stable-baselines3")
    parser.add_argument(
        "--quick", action="store_true", help="only check that it runs: 1 seed, 2 %% of the budgets, no stored results"
    )
    args = parser.parse_args()
    seeds, share = (1, 0.02) if args.quick else (args.seeds, args.share)
    settings: list[tuple[str, Mapping[str, Any]]] = [] if args.no_defaults else [(DEFAULTS, {})]
    settings += getattr(args, "try")
    settings += [] if args.no_sb3 else [(THEIRS, {})]
    before = results.MachineLoad.now()
    wanted = [
        (name, setting, changes, seed, int(share * TASKS[name].steps))
        for name in args.tasks
        for setting, changes in settings
        for seed in range(args.first_seed, args.first_seed + seeds)
    ]
    found = sweep(wanted, args.jobs)
    # Scores do not depend on the load of the machine, so they are stored in any case.
    machine = {**results.conditions(before), "quiet": True}
    body = f"{seeds} seeds; mean return of {EPISODES} episodes without exploration at the end:\n\n{table(found)}"
    result = {"runs": [_plain(one) for one in found], "settings": dict(settings)}
    whole = not args.quick and share == 1.0
    results.publish("defaults", "Default settings on standard tasks", body, result, machine, keep=whole)


if __name__ == "__main__":
    main()
