"""Evaluations during a run: plays them, keeps the newest and the best."""

from __future__ import annotations

import math
from collections.abc import Callable

from paceline.errors import EnvHung
from paceline.measure.record import EvaluationRow
from paceline.train.evaluate import Evaluator
from paceline.train.evaluation_notes import EvaluationNotes
from paceline.train.stopping import StopNow
from paceline.train.training import Training


class RunEvaluations:
    """Evaluates the newest weights of a training when asked to.

    Args:
        training: The training.
        note: Shows a note to the user.
    """

    def __init__(self, training: Training, note: Callable[[str], None]) -> None:
        self._training, self._note = training, note
        self._evaluator: Evaluator | None = None
        best = training.resumed_meta.get("best_eval")
        self.best = None if best is None else EvaluationRow(*best)
        self.newest: EvaluationRow | None = None
        self.at_steps = -1
        """Steps of the run at the last evaluation, also if it was not completed."""

    def run(self, watch: EvaluationNotes | None = None) -> EvaluationRow | None:
        """Play the episodes of one evaluation; None if it hangs or is cut off."""
        episodes = self._training.config.run.n_eval_episodes
        if self._evaluator is None:
            self._evaluator = self._training.evaluator()
        self.at_steps = self._training.tracker.steps
        try:
            with self._training.interruptible.during("evaluation"):
                result = self._evaluator.evaluate(episodes, watch=watch)
        except StopNow:
            return None
        except EnvHung as hang:
            self._note(f"{hang} This evaluation is skipped; the run continues.")
            return None
        if result.cut:
            self._note(
                f"evaluation: {result.cut} of {episodes} episodes were cut off at the step limit. "
                "Does the env ever set terminated or truncated?"
            )
        self.newest = EvaluationRow(result.mean_reward, result.mean_ep_length, result.success_rate)
        return self.newest

    def is_best(self, found: EvaluationRow) -> bool:
        """Whether this evaluation is better than all before. NaN is never better, and any number is better than NaN."""
        best = math.nan if self.best is None else self.best.mean_reward
        return not math.isnan(found.mean_reward) and not found.mean_reward <= best

    def close(self) -> None:
        """Close the evaluation's envs."""
        if self._evaluator is not None:
            self._evaluator.close()
