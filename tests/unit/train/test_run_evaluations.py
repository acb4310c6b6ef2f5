"""Evaluations during a run: the newest and the best, and those that hang or are cut off."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.errors import EnvHung
from paceline.measure.record import EvaluationRow
from paceline.train.evaluate import Evaluation
from paceline.train.run_evaluations import RunEvaluations
from paceline.train.stopping import Interruptible, StopNow


class Evaluator:
    """Returns results, or raises them if they are errors."""

    def __init__(self, results: list[Any]) -> None:
        self.results, self.closed = results, False

    def evaluate(self, n_episodes: int, *, watch: object = None) -> Any:
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        self.closed = True


def evaluations(*results: Any, meta: dict[str, Any] | None = None) -> tuple[RunEvaluations, Evaluator, list[str]]:
    evaluator, notes = Evaluator(list(results)), list[str]()
    training: Any = SimpleNamespace(
        config=SimpleNamespace(run=SimpleNamespace(n_eval_episodes=2)),
        tracker=SimpleNamespace(steps=640),
        interruptible=Interruptible(),
        resumed_meta=meta or {},
        evaluator=lambda: evaluator,
    )
    return RunEvaluations(training, notes.append), evaluator, notes


def result(*returns: float, cut: int = 0) -> Evaluation:
    return Evaluation(returns=returns, lengths=(5,) * len(returns), cut=cut)


def test_the_newest_evaluation_and_its_step_are_kept() -> None:
    it, evaluator, notes = evaluations(result(1.0, 3.0))
    assert (it.newest, it.at_steps) == (None, -1)
    assert it.run() == it.newest == EvaluationRow(2.0, 5.0)
    assert (it.at_steps, notes) == (640, [])
    it.close()
    assert evaluator.closed


@pytest.mark.parametrize("error", [EnvHung("env 0 hangs."), StopNow()])
def test_an_evaluation_that_hangs_or_is_cut_off_has_no_result(error: BaseException) -> None:
    it, _, notes = evaluations(result(1.0), error)
    first = it.run()
    assert it.run() is None
    assert it.newest == first
    said = ["env 0 hangs. This evaluation is skipped; the run continues."] if isinstance(error, EnvHung) else []
    assert notes == said


def test_episodes_without_an_end_are_noted() -> None:
    it, _, notes = evaluations(result(1.0, 2.0, cut=1))
    it.run()
    assert notes == [
        "evaluation: 1 of 2 episodes were cut off at the step limit. Does the env ever set terminated or truncated?"
    ]


@pytest.mark.parametrize(
    ("best", "found", "better"),
    [(None, 1.0, True), (1.0, 2.0, True), (1.0, 1.0, False), (math.nan, 0.0, True), (1.0, math.nan, False)],
)
def test_the_best_is_the_highest_number(best: float | None, found: float, better: bool) -> None:
    it, _, _ = evaluations(meta={} if best is None else {"best_eval": [best, 5.0]})
    assert it.is_best(EvaluationRow(found, 5.0)) is better
