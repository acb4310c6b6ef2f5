"""Records a run per iteration and episode: progress.csv, episodes.csv and TensorBoard logs.

The columns of progress.csv after the first three have the names of the TensorBoard tags.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.measure.append import EventFile, Table
from paceline.measure.cpu import CpuSupply
from paceline.measure.episodes import Episodes
from paceline.measure.folder import EPISODES, PROGRESS, RunFolder
from paceline.measure.speed import per_second, training_s

PHASES = ("collect", "learn", "sync", "wait", "eval", "checkpoint", "record", "other")
"""Phases with a TensorBoard tag; `other` has the phases without one. Together they are the seconds of an iteration."""

ACTIVITIES = ("env", "inference", "learn", "idle")
"""What a worker does: it steps envs, runs the policy, computes gradients or waits. Together this is its whole time."""

TAGS = (
    *(f"rollout/{name}" for name in ("ep_rew_mean", "ep_len_mean", "success_rate", "n_completed_episodes")),
    *(f"time/{name}" for name in ("fps", "episodes_per_s", "iteration_s", "time_elapsed", "training_s")),
    *(f"time/{name}_s" for name in PHASES),
    *(
        f"train/{name}"
        for name in (
            "loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction",
            "clip_range", "explained_variance", "std", "learning_rate", "n_updates",
        )
    ),
    *(f"eval/{name}" for name in ("mean_reward", "mean_ep_length", "success_rate")),
    *(
        f"parallel/{name}"
        for name in (
            "policy_lag_mean", "policy_lag_max", *(f"worker_{activity}_frac" for activity in ACTIVITIES),
            "learner_idle_frac", "workers_alive", "worker_restarts", "dropped_steps", "bytes_per_step",
        )
    ),
    *(
        f"system/{name}"
        for name in (
            "cpu_percent", "cpu_others_percent", "cpu_waiting_percent", "cpu_throttled_percent", "pss_mb",
        )
    ),
)  # fmt: skip
"""The TensorBoard tags of every run, in the order of progress.csv. Algorithms add tags of their own (`Plan.stats`)."""

SIGNALS = ("SIGINT", "SIGTERM")
"""Stop reasons of runs that a signal ended before their budget was spent."""
TENSORBOARD_GROUPS = {"system": "usage", "parallel": "workers"}
"""Names of groups of tags in TensorBoard, which sorts them by name: eval, rollout, time and train shall come first."""
EARLIER_TAGS = {"system/rss_mb": "system/pss_mb"}
"""Tags of earlier versions that have another name now."""

PROGRESS_HEADER = ("iteration", "steps", "episodes")
EPISODES_HEADER = ("step", "env", "return", "length", "wall_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """Settings of a run that are known before its first step; the first lines show them."""

    algo: str
    env: str
    seed: int
    n_envs: int
    group_size: int
    num_workers: int
    """0 for a run in this process."""
    start_method: str | None
    """None without workers."""
    nodes: int | None = None
    """Nodes of a cluster; None for workers of this machine."""
    worker_threads: int = 1
    learner_threads: int = 1
    device: str = "cpu"
    folder: str | None = None
    """Folder of the run; None without one."""
    resumed_steps: int = 0
    rollout_steps: int | None = None
    """Steps of a rollout; None if the envs have no common one."""
    resumable: bool = True
    """Whether a command can resume and evaluate the run: not with an env that was passed as a Python object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """Budgets of the run; whichever is spent first ends it."""

    steps: int | None = None
    episodes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerActivity:
    """What one worker did in an iteration. In the remaining time it was idle."""

    env_s: float
    inference_s: float
    cpu_percent: float | None = None
    """Percent of one core."""
    memory_mb: float | None = None
    learn_s: float = 0.0
    """Seconds of computing gradients for the learner."""


def mean_worker_s(workers: Sequence[WorkerActivity], wall_s: float) -> dict[str, float]:
    """Return the seconds of the average worker by activity; they add up to `wall_s`. Empty without workers.

    A slot of an asynchronous mode counts as a whole when the driver receives it. So in a single iteration `idle` may
    be negative; over several iterations it is not.
    """
    if not workers:
        return {}
    busy = {
        "env": sum(one.env_s for one in workers) / len(workers),
        "inference": sum(one.inference_s for one in workers) / len(workers),
        "learn": sum(one.learn_s for one in workers) / len(workers),
    }
    return {**busy, "idle": wall_s - sum(busy.values())}


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Result of an evaluation."""

    mean_reward: float
    mean_ep_length: float
    success_rate: float | None = None
    """Fraction of episodes that reached their goal; None if the env does not say (`info["is_success"]`)."""

    def scalars(self) -> dict[str, float]:
        """Return the numbers by tag."""
        judged = {} if self.success_rate is None else {"eval/success_rate": self.success_rate}
        return {"eval/mean_reward": self.mean_reward, "eval/mean_ep_length": self.mean_ep_length, **judged}


@dataclass(frozen=True, kw_only=True, slots=True)
class Iteration:
    """One rollout, and the update from it."""

    iteration: int
    """Number of this iteration, from 1."""
    steps: int
    """Steps of the run so far."""
    episodes: int
    """Episodes of the run so far."""
    wall_s: float
    """Seconds of the run so far, including earlier sessions of a resumed run."""
    training_s: float
    """Those of them that steps/s counts (`speed.training_s`)."""
    iteration_steps: int
    iteration_episodes: int
    iteration_s: float
    """Seconds since the end of the previous iteration."""
    ep_rew_mean: float | None = None
    """Mean return of the last 100 episodes; None before the first has ended."""
    ep_len_mean: float | None = None
    success_rate: float | None = None
    """Fraction of the last 100 episodes that reached their goal; None if the env does not say."""
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    """Means of reward parts and measures over the last 100 episodes."""
    last_return: float | None = None
    """Return of the episode that ended last."""
    last_length: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of this iteration by phase, with `other`; `env` and `inference` are parts of collecting."""
    train: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the update reports, by tag without the prefix `train/`."""
    evaluation: EvaluationRow | None = None
    """The evaluation after this update; None without one."""
    parallel: Mapping[str, float] = field(default_factory=dict)
    """Numbers about workers, by tag without the prefix `parallel/`."""
    system: Mapping[str, float] = field(default_factory=dict)
    """CPU and memory usage, by tag without the prefix `system/`."""
    workers: Sequence[WorkerActivity] = ()
    """Activity of each worker; recorded as the average over workers."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the user's callbacks recorded, by tag."""

    @property
    def counted_s(self) -> float:
        """The training time within this iteration: the seconds that steps/s counts."""
        return training_s(self.iteration_s, self.phases)

    @property
    def worker_s(self) -> dict[str, float]:
        """Seconds of the average worker by activity (`mean_worker_s`)."""
        return mean_worker_s(self.workers, self.iteration_s)

    def statistics(self) -> dict[str, float]:
        """Return what the update reports, the success rate and the reward parts, by tag."""
        found = {f"rollout/{name}_mean": value for name, value in self.reward_parts.items()}
        if self.success_rate is not None:
            found["rollout/success_rate"] = self.success_rate
        return found | {f"train/{name}": value for name, value in self.train.items()}

    def scalars(self) -> dict[str, float]:
        """Return the numbers of this iteration by tag."""
        found: dict[str, float] = {}
        if self.ep_rew_mean is not None and self.ep_len_mean is not None:
            found["rollout/ep_rew_mean"] = self.ep_rew_mean
            found["rollout/ep_len_mean"] = self.ep_len_mean
        found |= self.statistics()
        found["rollout/n_completed_episodes"] = self.iteration_episodes
        found["time/fps"] = per_second(self.iteration_steps, self.counted_s)
        found["time/episodes_per_s"] = per_second(self.iteration_episodes, self.counted_s)
        found["time/iteration_s"] = self.iteration_s
        found["time/time_elapsed"] = self.wall_s
        found["time/training_s"] = self.training_s
        spent = {name: self.phases.get(name, 0.0) for name in PHASES}
        spent["collect"] += self.phases.get("env", 0.0) + self.phases.get("inference", 0.0)
        spent["other"] += sum(self.phases.values()) - sum(spent.values())
        found |= {f"time/{name}_s": seconds for name, seconds in spent.items()}
        found |= {f"parallel/worker_{name}_frac": max(0.0, s) / self.iteration_s for name, s in self.worker_s.items()}
        for group, values in (("parallel", self.parallel), ("system", self.system)):
            for name, value in values.items():
                found[f"{group}/{name}"] = value
        if self.evaluation is not None:
            found |= self.evaluation.scalars()
        return found | dict(self.own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Content of summary.json. The field names are part of its format."""

    algo: str
    env: str
    seed: int
    n_envs: int
    num_workers: int
    group_size: int
    steps: int
    episodes: int
    iterations: int
    wall_s: float
    """Seconds from the first step on, including earlier sessions of a resumed run."""
    startup_s: float
    """Seconds before the first step: calibration, and start of workers and envs."""
    training_s: float
    """Seconds that `fps` counts: `wall_s` without evaluations and checkpoints."""
    fps: float
    """Steps per second: `steps` divided by `training_s`."""
    episodes_per_s: float = 0.0
    """Episodes per second: `episodes` divided by `training_s`."""
    final_eval: EvaluationRow | None
    best_eval: EvaluationRow | None
    phases: Mapping[str, float]
    """Seconds by phase; they add up to `wall_s`."""
    worker_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the average worker by activity; they add up to the time of all iterations. Empty without workers."""
    supply: CpuSupply | None = None
    """CPU time that this session got, and that others took from the same cores; None if it was not measured."""
    peak_memory_mb: float | None
    """Peak memory of all processes of the run (PSS); None if it was not measured."""
    worker_peak_mb: Sequence[float] = ()
    """Peak memory of each worker process (PSS): the largest sample."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """Newest value of what updates report, of the success rate and of the reward parts, by tag."""
    lag: Mapping[str, float]
    """Updates between the weights that collected a slot and those that learned from it."""
    lag_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of slots by lag."""
    dropped_steps: int = 0
    """Steps that were collected but not used for learning."""
    restarts: int
    """Number of workers that were replaced."""
    restarted: int = 0
    """Episodes that were lost with replaced workers, because their envs could not be restored."""
    skipped_updates: int = 0
    """Updates skipped because the gradient was not finite."""
    not_finite: int = 0
    """NaN and infinite values from envs (--on-nan warn or replace)."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Last value of each number that the user's callbacks recorded in this session."""
    weights_sha256: str
    runtime: str = "process"
    """inline, process or ray."""
    nodes: int = 1
    """Number of machines that workers ran on."""
    bytes_per_step: float = 0.0
    """Bytes that the driver received over the network, per step."""
    finished: bool
    """Whether the run ended because a budget was spent, and not by a signal or an error."""
    stop_reason: str

    @property
    def failed(self) -> bool:
        """Whether the run ended by an error."""
        return not self.finished and self.stop_reason not in SIGNALS


def tensorboard_tag(tag: str) -> str:
    """Return the name that a tag has in TensorBoard."""
    group, name = tag.split("/", 1)
    return f"{TENSORBOARD_GROUPS.get(group, group)}/{name}"


class RunRecord:
    """Writes iterations and episodes to the run's folder every two seconds.

    Call `flush` before saving a checkpoint: a resumed run keeps the rows up to the checkpoint's step, so these must
    be in the file.

    Args:
        folder: The run's folder.
        resume_steps: Step of the checkpoint that is resumed; rows after it are removed. None for a new run.
        hparams: The run's settings, for TensorBoard.
        extra_tags: Tags beyond `TAGS` that an algorithm reports.
        flush_s: Longest time that rows stay in memory.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        resume_steps: int | None = None,
        hparams: Mapping[str, bool | float | str] | None = None,
        extra_tags: tuple[str, ...] = (),
        flush_s: float = 2.0,
    ) -> None:
        header = PROGRESS_HEADER + TAGS + extra_tags
        self._known = frozenset(header)
        self._shown = {tag: tensorboard_tag(tag) for tag in TAGS + extra_tags}
        self._progress = Table(
            folder / PROGRESS, header, step_column="steps", resume_steps=resume_steps, renamed=EARLIER_TAGS
        )
        self._episodes = Table(folder / EPISODES, EPISODES_HEADER, step_column="step", resume_steps=resume_steps)
        self._events = EventFile(folder.events(resume=resume_steps is not None), resume_steps=resume_steps)
        if hparams:
            self._events.add_hparams(hparams)
        self._files = (self._progress, self._episodes, self._events)
        self._flush_s = flush_s
        self._flushed = time.perf_counter()
        self.flush()

    def __call__(self, iteration: Iteration, episodes: Episodes | None = None) -> None:
        """Add one iteration and the episodes that ended in it. Does not wait for the disk to sync.

        Raises:
            ValueError: The iteration has an unknown tag.
        """
        scalars = iteration.scalars()
        if not self._known.issuperset(scalars.keys() - iteration.own.keys()):
            unknown = ", ".join(sorted(scalars.keys() - iteration.own.keys() - self._known))
            raise ValueError(f"record: unknown tags {unknown}. Add them to TAGS, or to the `stats` of the plan.")
        if new := [tag for tag in iteration.own if tag not in self._progress.header]:
            self._progress.add_columns(new)  # on a full disk the columns come later
        cells = [str(iteration.iteration), str(iteration.steps), str(iteration.episodes)]
        tags = self._progress.header[len(PROGRESS_HEADER) :]
        cells += [_cell(scalars[tag]) if tag in scalars else "" for tag in tags]
        self._progress.add_row(cells)
        self._events.add_scalars(iteration.steps, {self._shown.get(tag, tag): value for tag, value in scalars.items()})
        if episodes is not None and len(episodes):
            wall = _cell(iteration.wall_s)
            columns = (a.tolist() for a in (episodes.step, episodes.env, episodes.returns, episodes.length))
            for step, env, returned, length in zip(*columns, strict=True):
                self._episodes.add_row([str(step), str(env), _cell(returned), str(length), wall])
        if time.perf_counter() - self._flushed >= self._flush_s:
            self.flush()

    def evaluated(self, steps: int, evaluation: EvaluationRow) -> None:
        """Add an evaluation that was made after the last iteration: its row in progress.csv gets the numbers too."""
        scalars = evaluation.scalars()
        self._progress.complete_last_row({tag: _cell(value) for tag, value in scalars.items()})
        self._events.add_scalars(steps, scalars)

    def add_own(self, steps: int, own: Mapping[str, float]) -> None:
        """Add what callbacks recorded after the last iteration; the numbers that its row has already stay there."""
        self._progress.complete_last_row({tag: _cell(value) for tag, value in own.items()}, replace=False)
        self._events.add_scalars(steps, own)

    def flush(self) -> None:
        """Write all rows to the operating system, so that they survive if the process is killed."""
        for file in self._files:
            file.flush()
        self._flushed = time.perf_counter()

    def unwritten(self) -> list[str]:
        """Flush, and return the names of the files that could not be written."""
        self.flush()
        return [file.path.name for file in self._files if file.unwritten]

    def close(self) -> None:
        """Flush and close; may be called twice."""
        for file in self._files:
            file.close()


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"  # nine digits represent any float32 exactly
