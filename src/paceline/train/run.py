"""A run from config to summary: folder, workers, training loop, signals. The commands and the Python classes use it.

build -> (resume | warm start | reset) -> loop -> last evaluation and checkpoint -> summary.json
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError, PacelineError, nearest
from paceline.measure.folder import (
    CONFIG,
    LAYOUT,
    SYSTEM_INFO,
    TRAIN_LOG,
    RunFolder,
    not_writable,
    require_writable,
)
from paceline.measure.machine import system_info
from paceline.measure.progress import Display, Progress
from paceline.measure.record import Goal, RunInfo, RunRecord, Summary
from paceline.measure.tracking import Tracking, require_wandb
from paceline.measure.train_log import TrainLog
from paceline.system.signals import handled_by
from paceline.train import checkpoint
from paceline.train.bookkeeping import Bookkeeping
from paceline.train.budget import RunBudget
from paceline.train.build import build
from paceline.train.callbacks import Callbacks, StopAtMeans, StopAtScore
from paceline.train.out_of_memory import out_of_memory
from paceline.train.stopping import Stopper
from paceline.train.training import Training

if TYPE_CHECKING:
    from paceline.train.agent import Agent


def train(config: TrainConfig, *, argv: list[str] | None = None, callbacks: Iterable[object] = ()) -> Summary:
    """Train as configured and write a run folder. Blocks until the run is over.

    Args:
        config: All settings of the run.
        argv: The command line, written to `command.txt`; None for that of this process.
        callbacks: Objects with methods of `paceline.train.callbacks.Callback`.

    Returns:
        The content of `summary.json`. Its `stop_reason` is `SIGINT` or `SIGTERM` after a signal.
    """
    watchers = all_callbacks(config, callbacks)
    folder = open_folder(config)
    try:
        run = Run(config, folder=folder, argv=argv)
    except BaseException:
        folder.discard_if_empty()
        raise
    with run:
        return run.go(callbacks=watchers)


def all_callbacks(config: TrainConfig, callbacks: Iterable[object] = (), agent: Agent | None = None) -> Callbacks:
    """The callbacks of `--stop-at-score` and `--stop-at`, then the user's.

    Args:
        config: All settings of the run.
        callbacks: The user's.
        agent: What they see as `moment.agent`.

    Raises:
        ConfigError: An object has no method that a run would call, or there is no list of them.
    """
    if not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks: must be a list (got a {type(callbacks).__name__}). Write callbacks=[...].")
    run = config.run
    built_in: list[object] = []
    if run.stop_at_score is not None:
        built_in.append(StopAtScore(run.stop_at_score, "evaluation" if run.eval_freq else "episodes"))
    if run.stop_at:
        built_in.append(StopAtMeans(run.stop_at))
    return Callbacks([*built_in, *callbacks], agent)


def open_folder(config: TrainConfig) -> RunFolder:
    """Create the run folder, or open that of the run to resume.

    Raises:
        ConfigError: The folder holds a run and neither --resume nor --overwrite is given, or it is not writable.
        CheckpointError: There is no checkpoint to resume from, or to take the weights from.
    """
    run = config.run
    if run.init_from is not None:
        checkpoint.find(run.init_from)  # raises now, before there is a folder
    source = resume_source(config)
    resumed = None if source is None else checkpoint.run_folder(source) or run.resume_from
    if run.checkpoint_dir is not None:
        if source is None and (found := checkpoint.steps(run.checkpoint_dir)):
            if not run.overwrite:
                raise ConfigError(
                    f"checkpoint_dir {str(run.checkpoint_dir)!r}: holds checkpoints of another run ({found[-1].name}). "
                    "Choose another folder, continue with --resume, or rename them with --overwrite."
                )
            checkpoint.set_aside_after(run.checkpoint_dir, -1)
        require_writable(run.checkpoint_dir, "checkpoint_dir")
    output_dir = run.output_dir or resumed
    continues = resumed is not None and output_dir is not None and output_dir.resolve() == resumed.resolve()
    return RunFolder.create(
        output_dir, env=config.env_name, algo=run.algo, seed=run.seed, resume=continues, overwrite=run.overwrite
    )


def resume_source(config: TrainConfig) -> Path | None:
    """The checkpoint to resume from; None for a run that starts from scratch.

    Raises:
        CheckpointError: The folder has no checkpoint, or it is damaged.
    """
    run = config.run
    if run.resume_from is None:
        return None
    is_checkpoint = (run.resume_from / checkpoint.MANIFEST).is_file()
    if not is_checkpoint and run.checkpoint_dir is not None and checkpoint.steps(run.checkpoint_dir):
        return checkpoint.find(run.checkpoint_dir, resumable=True)
    return checkpoint.find(run.resume_from, resumable=True)


class Run:
    """A training with its run folder. `go` may be called repeatedly. Owns workers and shared memory: close it."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        folder: RunFolder | None = None,
        argv: list[str] | None = None,
        init: checkpoint.Snapshot | None = None,
    ) -> None:
        """Start the workers, then load a checkpoint or reset the envs.

        Args:
            config: All settings of the run.
            folder: The run folder; None writes no files.
            argv: The command line, written to `command.txt`; None for that of this process.
            init: Initial weights, if the config does not resume a run.
        """
        self.config, self._folder = config, folder
        self.cut_off = False
        """Whether a second Ctrl-C has ended a session during a rollout: only `close` may follow."""
        self._log: TrainLog | None = None
        if config.run.track:
            require_wandb()  # before workers are started
        with ExitStack() as stack:
            self.training = build(config)
            stack.callback(self.training.close)
            _check_goals(config, self.training.tracker.reward_parts)
            resume_from = resume_source(config)
            self.notes = _load_or_reset(self.training, resume_from, init)
            record = None
            if folder is not None:
                self._log = stack.enter_context(closing(TrainLog(folder / TRAIN_LOG, append=resume_from is not None)))
                steps = self.training.tracker.steps if resume_from is not None else None
                try:
                    folder.write(CONFIG, config.to_yaml())
                    folder.write_command(argv or sys.argv)
                    folder.write_json(SYSTEM_INFO, system_info())
                    folder.write_json(LAYOUT, self.training.started_layout())
                    record = RunRecord(
                        folder,
                        resume_steps=steps,
                        hparams=self.training.hparams(),
                        extra_tags=self.training.extra_tags(),
                    )
                except OSError as error:
                    raise not_writable(folder.path, "output_dir", error) from error
                stack.callback(record.close)
            tracking = None
            if config.run.track:
                tracking = Tracking(config.to_dict(), folder)
                stack.callback(tracking.close)
            self._bookkeeping = stack.enter_context(
                Bookkeeping(self.training, folder=folder, record=record, tracking=tracking)
            )
            if resume_from is not None:
                self.notes += self._bookkeeping.resumed_from(resume_from)
            self._stack = stack.pop_all()

    def go(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        seconds: float | None = None,
        callbacks: Callbacks | None = None,
    ) -> Summary:
        """Train until a budget is spent or a signal arrives. The arguments are those of `session`.

        Returns:
            The content of `summary.json`.
        """
        with self.session(steps=steps, episodes=episodes, seconds=seconds, callbacks=callbacks) as (budget, record):
            self.training.driver.train(budget, record)
        return record.summary

    @contextmanager
    def session(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        seconds: float | None = None,
        callbacks: Callbacks | None = None,
        display: Display | None = None,
    ) -> Iterator[tuple[RunBudget, Bookkeeping]]:
        """Context of the training loop: shows progress, handles signals, writes last checkpoint and summary at the end.

        Yields what the loop needs; after the session, the bookkeeping has the summary.
        Without `steps`, `episodes` and `seconds`, the budget of the config applies.

        Args:
            steps: Further steps to train for.
            episodes: Further episodes to train for.
            seconds: Further seconds to train for.
            callbacks: Called during training; None for those of the config.
            display: What to show meanwhile; None for the panel, or nothing if the config says quiet.

        Raises:
            PacelineError: Training failed; the text names the last checkpoint.
        """
        training, bookkeeping, log = self.training, self._bookkeeping, self._log
        callbacks = all_callbacks(self.config) if callbacks is None else callbacks
        display = display or ("none" if self.config.run.quiet else "panel")
        training.clock.restart("startup")
        budget = RunBudget(training.tracker, training.clock, self._goal(steps, episodes, seconds))
        with (
            Progress(self._info(), budget.goal, display=display, log=log, collected=training.collected) as progress,
            handled_by(stopper := Stopper(budget.stop, progress.answer, training.interruptible)),
        ):
            for note in self.notes:
                progress.note(note)
            self.notes = []
            bookkeeping.begin(budget, progress, callbacks)
            try:
                try:
                    yield budget, bookkeeping
                except KeyboardInterrupt:
                    if not stopper.cut_off:
                        raise
                    self.cut_off = True
                bookkeeping.finish()
            except BaseException as error:
                if log is not None:
                    ended_by = "error" if isinstance(error, PacelineError) else f"ended by {type(error).__name__}"
                    log.say(f"{ended_by}: {error}", logging.ERROR)
                shown = out_of_memory(error, self.config) or error
                if isinstance(shown, PacelineError):
                    bookkeeping.abort(type(shown).__name__)
                    if bookkeeping.last_checkpoint is not None:
                        shown.args = (f"{shown}\nThe last checkpoint is {bookkeeping.last_checkpoint}",)
                if shown is error:
                    raise
                raise shown from error
            finally:
                training.clock.pause()

    def _goal(self, steps: int | None, episodes: int | None, seconds: float | None) -> Goal:
        """The budgets given by the arguments, counted from now; without any, those of the config."""
        tracker, clock, run = self.training.tracker, self.training.clock, self.config.run
        if steps is episodes is seconds is None:
            return Goal(steps=run.budget_steps, episodes=run.total_episodes, seconds=run.budget_s)
        return Goal(
            steps=None if steps is None else tracker.steps + steps,
            episodes=None if episodes is None else tracker.episodes + episodes,
            seconds=None if seconds is None else clock.elapsed_s + seconds,
        )

    def close(self) -> None:
        """End the workers and close the files. Idempotent."""
        self._stack.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _info(self) -> RunInfo:
        config, layout = self.config, self.training.layout
        return RunInfo(
            algo=config.run.algo,
            env=config.env_name,
            seed=config.run.seed,
            n_envs=config.n_envs,
            group_size=layout.group_size,
            num_workers=layout.num_workers,
            start_method=layout.start_method if layout.num_workers else None,
            nodes=layout.nodes if layout.runtime == "ray" else None,
            worker_threads=layout.threads_per_worker,
            learner_threads=layout.learner_threads,
            device=str(self.training.device),
            folder=None if self._folder is None else str(self._folder),
            resumed_steps=self.training.tracker.steps,
            resumable=isinstance(config.env.env, str),
            rollout_steps=None if config.training.asynchronous else config.batch_steps,
        )


def _check_goals(config: TrainConfig, reward_parts: Sequence[str]) -> None:
    """Raise ConfigError if `--stop-at` names a reward part or measure that no shaper reports."""
    for name in config.run.stop_at:
        if name not in reward_parts:
            hint = (
                nearest(name, reward_parts)
                if reward_parts
                else "Use a shaper that reports it (--shaper), or leave out --stop-at."
            )
            raise ConfigError(f"stop_at: no reward shaper reports {name!r}. {hint}")


def _load_or_reset(training: Training, resume_from: Path | None, init: checkpoint.Snapshot | None) -> list[str]:
    """Resume from a checkpoint, or load initial weights and reset the envs; returns notes for the user."""
    run = training.config.run
    layout = training.layout
    notes = []
    if layout.measured or layout.runtime == "ray":
        notes.append(f"layout: {layout.why}")
    elif layout.num_workers > layout.cores:
        notes.append(
            f"{layout.num_workers} workers share {layout.cores} core(s): fine for envs that wait, no gain for envs "
            "that compute. --num-workers auto picks"
        )
    if resume_from is not None:
        snapshot = checkpoint.load(resume_from)
        if "learner/version" not in snapshot.arrays:
            raise CheckpointError(f"{resume_from}: has only a model, which cannot be resumed. Use --init-from.")
        checkpoint.require_match(snapshot, {**training.identity(), **training.schedule()})
        try:
            restarted = training.resume(snapshot)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            # The sha256 is right, so the file is undamaged: another version, or another program, has written it.
            raise CheckpointError(
                f"{resume_from}: its arrays do not fit this training ({type(error).__name__}: {error}). Use another "
                "checkpoint, or --init-from to load only its weights."
            ) from error
        notes.append(f"resumed from {resume_from} at step {training.tracker.steps:,}")
        if restarted:
            shown = ", ".join(map(str, restarted[:8])) + (", ..." if len(restarted) > 8 else "")
            notes.append(f"envs {shown}: could not be restored and started a new episode")
        return notes
    if run.init_from:
        snapshot = checkpoint.load(checkpoint.find(run.init_from))
        checkpoint.require_match(snapshot, training.identity())
        training.load_model(snapshot)
        notes.append(f"weights from {snapshot.path}")
    if init is not None:
        training.load_model(init)
    training.rollouts.reset()
    return notes
