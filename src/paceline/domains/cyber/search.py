"""Search over workflows by Bayesian optimisation: choose a workflow, train with it, evaluate, choose the next.

    earlier trials -> GP-UCB -> workflow -> PPO, from the weights of the last trial -> reward -> one more trial

A trial trains until the compliance passes the threshold or the budget of the trial is spent. The trainer and the
surrogate model are arguments; this module starts no process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.gp_ucb import FEWEST, Belief, Floats, GaussianProcess, choose
from paceline.domains.cyber.trials import Trained, Trial, read_about, read_trials, write_trials
from paceline.domains.cyber.workflow import PLACES, WORKFLOWS, places_of, read_workflow, workflow_name
from paceline.errors import ConfigError, check_range
from paceline.measure.folder import to_json

POINTS: Floats = places_of(WORKFLOWS) / (PLACES - 1)
"""[120, 5] place of each type in each order, scaled to 0..1. Orders are close if few types differ by few places."""
ENOUGH = 8
"""Smallest number of trials for which a trend over trials is computed."""
INDEX = {tuple(order): i for i, order in enumerate(WORKFLOWS.tolist())}


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPlan:
    """Settings of a search."""

    gp_beta: float = 2.0
    """Exploration weight (beta) of GP-UCB, in standard deviations."""
    n_workflows: int = len(WORKFLOWS)
    """Largest number of workflows to train."""
    n_initial: int = 4
    """Number of workflows drawn at random before the Gaussian process chooses."""
    total_episodes: int | None = None
    """Budget of the whole search in episodes; None for no limit."""
    workflow_episodes: int = 10_000
    """Budget of each trial in episodes."""
    duration_s: float | None = None
    """Budget of the whole search in seconds of training; None for no limit."""
    warm_start: bool = True
    """Whether each trial starts with the weights of the previous one."""
    seed: int = 0
    first: tuple[str, ...] = ()
    """Workflows to try first, before those drawn at random."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("gp_beta", self.gp_beta, "Try 2.", at_least=0)
        check_range("n_workflows", self.n_workflows, f"There are {len(WORKFLOWS)}.", at_least=1, at_most=len(WORKFLOWS))
        check_range("n_initial", self.n_initial, "Try 4.", at_least=FEWEST)
        if self.total_episodes is not None:
            check_range("total_episodes", self.total_episodes, "Try 100000.", at_least=1)
        check_range("workflow_episodes", self.workflow_episodes, "Try 10000.", at_least=1)
        if len(set(self.first)) < len(self.first):
            raise ConfigError("workflow: one is given twice. Give each once.")


@dataclass(frozen=True, slots=True)
class Proposal:
    """The workflow to train next, with its prediction; None if the Gaussian process did not choose it."""

    workflow: str
    expected: float | None = None
    deviation: float | None = None
    upper: float | None = None


class Trainer(Protocol):
    """Trains an agent with one workflow."""

    def __call__(
        self, workflow: str, folder: Path, *, warm: Path | None, episodes: int, seconds: float | None
    ) -> Trained | str:
        """Train in `folder`, or resume the run that is there.

        Args:
            workflow: The host types in order of priority.
            folder: The run's folder.
            warm: The run whose weights to start with; None for new weights.
            episodes: Most episodes.
            seconds: Time limit; None for no limit.

        Returns:
            The result, or the name of the signal that ended the training early.
        """


class Search:
    """A search and its trials, in one folder.

    Args:
        folder: Output folder.
        plan: Settings of the search.
        about: Other content of search.json; a search can be continued only with equal `settings`.
        surrogate: Predicts the reward of workflows that have not been tried.

    Raises:
        ConfigError: The folder holds a search with other settings.
    """

    def __init__(self, folder: Path, plan: SearchPlan, about: dict[str, Any], surrogate: GaussianProcess) -> None:
        self.folder, self.plan = folder, plan
        self.trials = read_trials(folder)
        self._surrogate = surrogate
        self._belief: Belief | None = None
        self._fitted = 0  # number of trials in the belief
        # A continued search may change its budgets, but not the settings that decide which workflow is tried.
        budgets = ("total_episodes", "n_workflows", "duration_s")
        fixed = {key: value for key, value in asdict(plan).items() if key not in budgets}
        # Round-trip through JSON, so that it can be compared with the content of a file.
        self._about = json.loads(to_json({**about, "settings": {**about.get("settings", {}), **fixed}}))
        self._require_same_settings(read_about(folder))

    @property
    def episodes(self) -> int:
        """Episodes of all trials so far."""
        return sum(trial.episodes for trial in self.trials)

    @property
    def wall_s(self) -> float:
        """Seconds of training so far."""
        return sum(trial.wall_s for trial in self.trials)

    @property
    def drift(self) -> float | None:
        """Rank correlation of reward and trial number; None with fewer than `ENOUGH` trials.

        If it is near 1, later workflows have higher rewards because warm starts gave them more training.
        """
        if len(self.trials) < ENOUGH:
            return None
        rewards = np.array([trial.reward for trial in self.trials])
        # Equal rewards share a rank.
        ranks = (rewards[:, None] > rewards).sum(1) + 0.5 * (rewards[:, None] == rewards).sum(1)
        return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) if np.ptp(ranks) else 0.0

    @property
    def best(self) -> Trial | None:
        """The trial with the highest reward; the first of them if several tie."""
        return self.leaders[0] if self.trials else None

    @property
    def leaders(self) -> list[Trial]:
        """The trials with the highest reward: more than one if they tie."""
        highest = max((trial.reward for trial in self.trials), default=None)
        return [trial for trial in self.trials if trial.reward == highest]

    def belief(self) -> Belief | None:
        """Predicted reward of all workflows; None with fewer than `FEWEST` trials."""
        if len(self.trials) >= FEWEST and self._fitted != len(self.trials):
            seen = np.array([trial.reward for trial in self.trials], np.float64)
            self._belief = self._surrogate(POINTS, POINTS[self._taken()], seen)
            self._fitted = len(self.trials)
        return self._belief

    def propose(self) -> Proposal:
        """Choose the next workflow. Deterministic: the same trials give the same choice."""
        taken = self._taken()
        firsts = [INDEX[read_workflow(text)] for text in self.plan.first]
        drawn: NDArray[np.int64] = np.random.default_rng(self.plan.seed).permutation(len(WORKFLOWS))
        beginning = list(dict.fromkeys([*firsts, *drawn.tolist()]))[: max(self.plan.n_initial, len(firsts))]
        left = [index for index in beginning if index not in taken]
        belief = self.belief()
        if left or belief is None:
            return Proposal(workflow_name(WORKFLOWS[left[0]]))
        index = choose(belief, self.plan.gp_beta, taken)
        predicted = (belief.mean, belief.std, belief.upper(self.plan.gp_beta))
        return Proposal(workflow_name(WORKFLOWS[index]), *(float(values[index]) for values in predicted))

    def run(self, train: Trainer, on_trial: Callable[[Search], None]) -> str:
        """Try workflows until a budget is spent or a signal ends a training.

        Args:
            train: Trains with one workflow.
            on_trial: Called after each trial, when search.csv and search.json are written.

        Returns:
            Why the search ended: `n_workflows`, `total_episodes`, `duration`, or the name of a signal.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while (reason := self._spent()) is None:
            proposal = self.propose()
            workflow, number = proposal.workflow, len(self.trials) + 1
            name = f"{number:03d}_{workflow.replace(',', '-')}"
            self.write(under_way=workflow)
            warm = self.folder / self.trials[-1].folder if self.plan.warm_start and self.trials else None
            trained = train(
                workflow,
                self.folder / name,
                warm=warm,
                episodes=min(self.plan.workflow_episodes, _left(self.plan.total_episodes, self.episodes)),
                seconds=None if self.plan.duration_s is None else self.plan.duration_s - self.wall_s,
            )
            if isinstance(trained, str):
                return trained
            self.trials.append(Trial(number=number, folder=name, **asdict(proposal), **asdict(trained)))
            self.write()
            on_trial(self)
        return reason

    def write(self, *, under_way: str | None = None) -> None:
        """Replace search.csv and search.json.

        Args:
            under_way: The workflow that is trained now.
        """
        best, belief = self.best, self.belief()
        expected = None if belief is None else _ranking(belief, self._taken())
        about = {
            **self._about,
            "budget": {"total_episodes": self.plan.total_episodes, "n_workflows": self.plan.n_workflows},
            "spent_episodes": self.episodes,
            "under_way": under_way,
            "best": None if best is None else asdict(best),
            "tied_for_best": [trial.workflow for trial in self.leaders[1:]],
            "drift": self.drift,
            "expected": expected,
        }
        write_trials(self.folder, self.trials, about)

    def _spent(self) -> str | None:
        if len(self.trials) >= self.plan.n_workflows:
            return "n_workflows"
        if _left(self.plan.total_episodes, self.episodes) <= 0:
            return "total_episodes"
        return "duration" if self.plan.duration_s is not None and self.wall_s >= self.plan.duration_s else None

    def _taken(self) -> list[int]:
        return [INDEX[read_workflow(trial.workflow)] for trial in self.trials]

    def _require_same_settings(self, earlier: dict[str, Any]) -> None:
        """Raise ConfigError if the folder holds a search with other settings.

        Args:
            earlier: Content of search.json; empty if there is none.
        """
        settings = earlier.get("settings", {})
        differing = [
            f"{key} is {settings.get(key)!r} there and {value!r} here"
            for key, value in self._about["settings"].items()
            if settings.get(key) != value
        ]
        if earlier and differing:
            raise ConfigError(
                f"{self.folder}: holds another search: {'; '.join(differing)}. "
                "Continue with the same settings, or search in another folder."
            )


def _left(budget: int | None, spent: int) -> int:
    return sys.maxsize if budget is None else budget - spent


def _ranking(belief: Belief, taken: Sequence[int]) -> list[dict[str, Any]]:
    """All workflows with their predictions, the highest mean first."""
    return [
        {
            "workflow": workflow_name(WORKFLOWS[i]),
            "mean": float(belief.mean[i]),
            "std": float(belief.std[i]),
            "tried": int(i) in taken,
        }
        for i in np.argsort(-belief.mean, kind="stable")
    ]
