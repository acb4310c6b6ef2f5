"""Bookkeeping of a run: after each update log, call callbacks, evaluate and save; at the end write the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from paceline.errors import CallbackError
from paceline.measure.folder import BEST_MODEL, CHECKPOINTS, RunFolder
from paceline.measure.next_commands import resume_command
from paceline.measure.progress import Progress
from paceline.measure.record import (
    PROGRESS_HEADER,
    SIGNALS,
    TAGS,
    EvaluationRow,
    Goal,
    Iteration,
    RunRecord,
    Summary,
)
from paceline.measure.speed import per_second, training_s, with_other
from paceline.measure.tracking import Tracking
from paceline.train import checkpoint
from paceline.train.activity import activity, lag_percentiles
from paceline.train.budget import RunBudget
from paceline.train.callbacks import Callbacks, Moment, OwnNumbers
from paceline.train.evaluation_notes import EvaluationNotes
from paceline.train.fault_notes import FaultNotes
from paceline.train.run_evaluations import RunEvaluations
from paceline.train.run_usage import RunUsage
from paceline.train.saving import Saving
from paceline.train.training import Training


class Bookkeeping:
    """The `Record` of the training loop: called by it after each batch and each update, in the driver.

    Args:
        training: The training; bookkeeping reads its statistics and saves its state.
        folder: The run folder; None writes no best model and no summary.
        record: Writes progress.csv, episodes.csv and TensorBoard events.
        tracking: Sends the same numbers to W&B.
    """

    def __init__(
        self,
        training: Training,
        *,
        folder: RunFolder | None = None,
        record: RunRecord | None = None,
        tracking: Tracking | None = None,
    ) -> None:
        run = training.config.run
        self._training, self._folder, self._record, self._tracking = training, folder, record, tracking
        self._tracker, self._clock = training.tracker, training.clock
        self._stats: dict[str, float] = {}
        self._statistics: dict[str, float] = {}  # the newest of each; an iteration without an update lacks some
        self._lags: Sequence[int] = ()
        self._lag_counts: Counter[int] = Counter()
        self._worker_s: Counter[str] = Counter(training.resumed_meta.get("worker_s", {}))
        self._last_return: float | None = None
        self._last_length: int | None = None
        self.summary: Summary
        """Content of `summary.json`; set at the end of each session."""
        self.last_checkpoint: Path | None = None
        self._checkpoints = run.checkpoint_dir or (None if folder is None else folder / CHECKPOINTS)
        self._usage, self._faults = RunUsage(training), FaultNotes(training)
        self._iterations = int(training.resumed_meta.get("iterations", 0))
        self._note = _Notes()
        self._evaluations = RunEvaluations(training, self._note)
        self._saved_at = -1
        self._saving = Saving(self._note)
        self._first_step, self._moved = self._tracker.steps, training.runtime.bytes_up
        self.begin(RunBudget(training.tracker, training.clock, Goal()))

    def begin(self, budget: RunBudget, progress: Progress | None = None, callbacks: Callbacks | None = None) -> None:
        """Start of a training session: resets what is counted per session.

        Args:
            budget: Ends the run if a callback asks for it.
            progress: Shows iterations and notes; None shows nothing.
            callbacks: The callbacks of this session.
        """
        self._budget, self._progress, self._callbacks = budget, progress, callbacks or Callbacks()
        self._note.progress = progress
        self._own = OwnNumbers({*PROGRESS_HEADER, *TAGS, *self._training.extra_tags()})
        self._stopped = False
        self._phases = self._clock.snapshot()
        self._steps, self._episodes = self._tracker.steps, self._tracker.episodes

    def __enter__(self) -> Bookkeeping:
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluations.close()

    def updated(self, stats: dict[str, float]) -> None:
        """Log, call callbacks, evaluate and save after an update."""
        with self._clock.phase("record"):
            self._iterations += 1
            self._stats = stats
            self._lags = self._training.rollouts.last.lags or [self._training.learner.lag]
            self._lag_counts.update(self._lags)
            self._note_faults()
            run = self._training.config.run
            self._call("on_update")
            evaluate = run.n_eval_episodes and _due(run.eval_freq, self._steps, self._tracker.steps)
            evaluation = self.evaluate() if evaluate else None
            save = _due(run.save_freq, self._steps, self._tracker.steps)
            self._record_iteration(evaluation)
            if save:
                self.save()

    def collected(self) -> None:
        """Call the `on_rollout` callbacks."""
        self._call("on_rollout")

    def evaluate(self, watch: EvaluationNotes | None = None) -> EvaluationRow | None:
        """Evaluate the newest weights, and save the model if it is the best so far. None if it hangs or is cut off."""
        evaluations, folder = self._evaluations, self._folder
        with self._clock.phase("eval"):
            found = evaluations.run(watch)
            if found is None:
                return None
            if evaluations.is_best(found):
                before, evaluations.best = evaluations.best, found  # `_write` stores it with the model
                if folder is not None and self._write(folder / BEST_MODEL, self._training.model_state()) is None:
                    evaluations.best = before  # not saved: the next evaluation is compared with the model on disk
        self._call("on_evaluation")
        return found

    def save(self, *, announce: bool = True) -> None:
        """Write a checkpoint. If that fails, for example on a full disk, show a note and continue.

        Args:
            announce: Whether to call `on_checkpoint`.
        """
        if self._checkpoints is None:
            return
        with self._clock.phase("checkpoint"):
            if self._record is not None:
                self._record.flush()
            steps = self._tracker.steps
            written = self._write(self._checkpoints / checkpoint.step_name(steps), self._training.state())
            if written is not None:
                self.last_checkpoint, self._saved_at = written, steps
                checkpoint.prune(self._checkpoints, self._training.config.run.keep_checkpoints, written)
        if written is not None and announce:
            self._call("on_checkpoint")

    def resumed_from(self, path: Path) -> list[str]:
        """Note that this run was resumed from checkpoint `path`, and rename checkpoints of later steps.

        Returns:
            Notes for the user.
        """
        self.last_checkpoint = path
        if self._checkpoints is None:
            return []
        aside = checkpoint.set_aside_after(self._checkpoints, self._tracker.steps)
        return [f"{later.name}: renamed, because this run continues from an earlier step" for later in aside]

    def finish(self) -> None:
        """Write the last checkpoint, evaluate (except after a signal: it may take long), and write the summary.

        Raises:
            NotSaved: The last checkpoint or another file could not be written.
        """
        run = self._training.config.run
        self._note_faults()
        if self._saved_at != self._tracker.steps:
            self.save()
        signalled = self._budget.stop_reason in SIGNALS
        if run.n_eval_episodes and self._evaluations.at_steps != self._tracker.steps and not signalled:
            best = self._evaluations.best
            if (final := self.evaluate(EvaluationNotes(run.n_eval_episodes, self._note))) is not None:
                self._record_final(final)
            if self._evaluations.best != best:
                self.save(announce=False)  # once more, with the new best score: a resumed run reads it from here
        self._stopped = True
        self._call("on_stop")
        if self._saved_at != self._tracker.steps:
            self.save(announce=False)  # once more: there may be space again
        self._require_saved()
        self._sum_up()
        self._require_saved()

    def _require_saved(self) -> None:
        resumable = self._folder is not None and self.last_checkpoint is not None
        resume = resume_command(self._training.config.run.algo, str(self._folder)) if resumable else None
        self._saving.require_all(self._tracker.steps, self._record, resume)

    def abort(self, reason: str) -> None:
        """Call `on_stop` and write the summary of a run that failed.

        Args:
            reason: Stop reason: the class name of the error.
        """
        self._budget.stop_reason = reason
        if not self._stopped:
            # The caller raises the first error, which must not be replaced by one of a callback.
            with suppress(CallbackError):
                self._call("on_stop")
        self._note_faults()
        self._sum_up(failed=True)

    def _call(self, hook: str) -> None:
        """Call the callbacks that have `hook`, and stop the run if one of them returns False."""
        if hook not in self._callbacks:
            return
        with self._clock.phase("callback"):
            tracker = self._tracker
            extras = self._training.rollouts.extras() if hook in ("on_rollout", "on_update") else {}
            moment = Moment(
                steps=tracker.steps,
                episodes=tracker.episodes,
                iteration=self._iterations + (hook == "on_rollout"),  # which comes before the update that is counted
                wall_s=self._clock.elapsed_s,
                mean_return=tracker.mean_return,
                mean_length=tracker.mean_length,
                reward_parts=tracker.mean_parts(),
                extras={name: values.copy() for name, values in extras.items()},
                finished=self._training.rollouts.last.finished,
                train=self._stats,
                evaluation=self._evaluations.newest,
                checkpoint=self.last_checkpoint,
                stop_reason=self._budget.stop_reason,
                run_agent=self._callbacks.agent,
                own_numbers=self._own,
            )
            stop_reason = self._callbacks(hook, moment)
        if stop_reason is not None:
            self._budget.stop(stop_reason)

    def _record_iteration(self, evaluation: EvaluationRow | None) -> None:
        clock, tracker, training = self._clock, self._tracker, self._training
        now = clock.snapshot()
        since = now.since(self._phases)
        wall_s, iteration_s = now.elapsed_s, since.elapsed_s
        spent = with_other(since.seconds, iteration_s)
        report = training.rollouts.last
        workers, moved = training.layout.num_workers, training.runtime.bytes_up
        usage = self._usage.sample()
        for note in self._faults.memory_growth(usage):
            self._note(note)
        finished = report.finished
        if len(finished):
            self._last_return, self._last_length = float(finished.returns[-1]), int(finished.length[-1])
        iteration = Iteration(
            iteration=self._iterations,
            steps=tracker.steps,
            episodes=tracker.episodes,
            wall_s=wall_s,
            training_s=training_s(wall_s, now.seconds),
            iteration_steps=tracker.steps - self._steps,
            iteration_episodes=tracker.episodes - self._episodes,
            iteration_s=iteration_s,
            ep_rew_mean=tracker.mean_return,
            ep_len_mean=tracker.mean_length,
            success_rate=tracker.success_rate,
            reward_parts=tracker.mean_parts(),
            last_return=self._last_return,
            last_length=self._last_length,
            phases=spent,
            train=self._stats,
            evaluation=evaluation,
            parallel={
                "policy_lag_mean": sum(self._lags) / len(self._lags),
                "policy_lag_max": float(max(self._lags)),
                "learner_idle_frac": 1.0 - spent.get("learn", 0.0) / iteration_s,
                "workers_alive": float(workers),
                "worker_restarts": float(training.rollouts.restarts.count),
                "dropped_steps": float(report.dropped_steps),
                "bytes_per_step": (moved - self._moved) / max(1, tracker.steps - self._steps),
            },
            system=usage.scalars(),
            workers=activity(training, usage) if workers else (),
            own=self._own.take(),
        )
        self._worker_s.update(iteration.worker_s)
        self._phases, self._steps, self._episodes = now, tracker.steps, tracker.episodes
        self._moved = moved
        self._statistics |= iteration.statistics()
        if self._record is not None:
            self._record(iteration, finished)
        if self._tracking is not None:
            self._tracking(iteration)
        if self._progress is not None:
            self._progress.update(iteration)

    def _record_final(self, evaluation: EvaluationRow) -> None:
        if self._record is not None:
            self._record.evaluated(self._tracker.steps, evaluation)
        if self._tracking is not None:
            self._tracking.evaluated(self._tracker.steps, evaluation)

    def _write(self, path: Path, arrays: checkpoint.State) -> Path | None:
        training, best = self._training, self._evaluations.best
        meta = {
            "identity": {**training.identity(), **training.schedule()},
            "config": training.config.to_dict(),
            "iterations": self._iterations,
            "steps": self._tracker.steps,
            "best_eval": None if best is None else list(best.scalars().values()),
            "clock": self._clock.state(),
            "worker_s": dict(self._worker_s),
        }
        return self._saving.snapshot(path, arrays, meta)

    def _sum_up(self, *, failed: bool = False) -> None:
        training, config = self._training, self._training.config
        reason = self._budget.stop_reason or ""
        self._usage.sample(force=True)
        now = self._clock.snapshot()
        phases, wall_s = now.seconds, now.elapsed_s
        startup_s = phases.pop("startup", 0.0)
        counted_s = training_s(wall_s, phases)
        self.summary = summary = Summary(
            algo=config.run.algo,
            env=config.env_name,
            seed=config.run.seed,
            n_envs=config.n_envs,
            num_workers=training.layout.num_workers,
            group_size=training.layout.group_size,
            steps=self._tracker.steps,
            episodes=self._tracker.episodes,
            iterations=self._iterations,
            wall_s=wall_s,
            startup_s=startup_s,
            training_s=counted_s,
            fps=per_second(self._tracker.steps, counted_s),
            episodes_per_s=per_second(self._tracker.episodes, counted_s),
            final_eval=self._evaluations.newest,
            best_eval=self._evaluations.best,
            phases=with_other(phases, wall_s),
            worker_s=dict(self._worker_s),
            supply=self._usage.sampler.supply(),
            peak_memory_mb=self._usage.sampler.peak_memory_mb,
            worker_peak_mb=self._usage.worker_peak_mb,
            statistics=self._statistics,
            lag=lag_percentiles(self._lag_counts),
            lag_counts={str(lag): count for lag, count in sorted(self._lag_counts.items())},
            dropped_steps=training.rollouts.last.dropped_steps,
            restarts=training.rollouts.restarts.count,
            restarted=training.rollouts.restarts.restarted,
            skipped_updates=training.learner.bad.count,
            not_finite=self._faults.not_finite.count,
            weights_sha256=training.weights.sha256(),
            runtime=training.layout.runtime,
            nodes=training.layout.nodes,
            bytes_per_step=training.runtime.bytes_up / max(1, self._tracker.steps - self._first_step),
            finished=not failed and reason not in SIGNALS,
            stop_reason=reason,
            own=dict(self._own.last),
        )
        if self._record is not None and (rest := self._own.take()):
            self._record.add_own(self._tracker.steps, rest)
        if self._folder is not None:
            self._saving.summary(self._folder, summary)
        if self._tracking is not None:
            self._tracking.sum_up(summary)
        if self._progress is not None:
            self._progress.close(summary)

    def _note_faults(self) -> None:
        for note, detail in self._faults.notes():
            self._note(note, detail)


class _Notes:
    """Shows notes on the display of the session and writes them to the log.

    An object of its own, because a method of Bookkeeping in the objects that it owns would be a reference cycle, which
    keeps files and workers of a failed start open.
    """

    progress: Progress | None = None

    def __call__(self, text: str, detail: str = "") -> None:
        """Show a note; `detail` goes to the log only."""
        if self.progress is not None:
            self.progress.note(text, detail)


def _due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` lies between two step counts; never if `every` is 0."""
    return every > 0 and now // every > before // every
