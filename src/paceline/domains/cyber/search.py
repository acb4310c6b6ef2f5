"""Search over workflows by Bayesian optimisation: choose a workflow, train with it, evaluate, choose the next.

    trials so far -> GP-UCB -> workflow -> PPO from the last one's weights -> reward -> one more trial

A workflow is trained until its compliance passes the threshold or its share of the budget is spent. The trainer and the
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
from paceline.domains.cyber.workflow import PLACES, WORKFLOWS, Order, places_of, read_workflow, workflow_name
from paceline.errors import ConfigError, check_range
from paceline.measure.folder import to_json

POINTS: Floats = places_of(WORKFLOWS) / (PLACES - 1)
"""[120, 5] where the types stand, from 0 to 1: two orders are near each other if few types have moved, and not far."""
ENOUGH = 8
"""Trials from which on a trend in them can be told from chance."""
INDEX = {tuple(order): i for i, order in enumerate(WORKFLOWS.tolist())}


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPlan:
    """How a search goes about it."""

    gp_beta: float = 2.0
    """How much a doubtful workflow is preferred: by this many deviations."""
    n_workflows: int = len(WORKFLOWS)
    """Workflows to try at most."""
    n_initial: int = 4
    """The first ones, which are drawn at random: there is nothing to expect yet."""
    total_episodes: int | None = None
    """Budget of all of them together; None for none."""
    workflow_episodes: int = 10_000
    """Budget of each."""
    duration_s: float | None = None
    """Seconds of training in all; None for as long as it takes."""
    warm_start: bool = True
    """Whether each begins with the weights of the one before."""
    seed: int = 0
    first: tuple[str, ...] = ()
    """Workflows to begin with, before any is drawn."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("gp_beta", self.gp_beta, "Try 2.", at_least=0)
        check_range("n_workflows", self.n_workflows, f"There are {len(WORKFLOWS)}.", at_least=1, at_most=len(WORKFLOWS))
        check_range("n_initial", self.n_initial, "Try 4.", at_least=FEWEST)
        if self.total_episodes is not None:
            check_range("total_episodes", self.total_episodes, "Try 100000.", at_least=1)
        check_range("workflow_episodes", self.workflow_episodes, "Try 10000.", at_least=1)
        if len(set(self.first)) < len(self.first):
            raise ConfigError("workflow: one is named twice. Name each once.")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to train with next."""

    order: Order
    expected: float | None = None
    deviation: float | None = None
    upper: float | None = None


class Trainer(Protocol):
    """Trains with one workflow."""

    def __call__(
        self, workflow: str, folder: Path, *, warm: Path | None, episodes: int, seconds: float | None
    ) -> Trained | str:
        """Train in `folder`, or go on there if it has been begun.

        Args:
            workflow: The host types in order of priority.
            folder: The run's folder.
            warm: The run whose weights to start from.
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
        self._fitted = 0  # trials that the belief is made of
        # A continued search may change its budgets, but not the settings that decide which workflow is tried.
        budgets = ("total_episodes", "n_workflows", "duration_s")
        fixed = {key: value for key, value in asdict(plan).items() if key not in budgets}
        # Round-trip through JSON, so that it can be compared with the content of a file.
        self._about = json.loads(to_json({**about, "settings": {**about.get("settings", {}), **fixed}}))
        self._under_way: str | None = None
        self._refuse_another(read_about(folder))

    @property
    def episodes(self) -> int:
        """Spent so far."""
        return sum(trial.episodes for trial in self.trials)

    @property
    def wall_s(self) -> float:
        """Seconds of training so far."""
        return sum(trial.wall_s for trial in self.trials)

    @property
    def drift(self) -> float | None:
        """Rank correlation of reward and number of the trial; None before there are enough to tell.

        Near 1, later workflows did better because they came later: warm starts hand training on.
        """
        if len(self.trials) < ENOUGH:
            return None
        rewards = np.array([trial.reward for trial in self.trials])
        # Equal rewards share a rank.
        ranks = (rewards[:, None] > rewards).sum(1) + 0.5 * (rewards[:, None] == rewards).sum(1)
        return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) if np.ptp(ranks) else 0.0

    @property
    def best(self) -> Trial | None:
        """The trial with the highest reward."""
        return max(self.trials, key=lambda trial: trial.reward, default=None)

    def belief(self) -> Belief | None:
        """What is expected of all workflows; None before there is enough to go by."""
        if len(self.trials) >= FEWEST and self._fitted != len(self.trials):
            seen = np.array([trial.reward for trial in self.trials], np.float64)
            self._belief = self._surrogate(POINTS, POINTS[self._taken()], seen)
            self._fitted = len(self.trials)
        return self._belief

    def propose(self) -> Proposal:
        """What to train with next: the same for the same trials."""
        taken = self._taken()
        firsts = [INDEX[read_workflow(text)] for text in self.plan.first]
        drawn: NDArray[np.int64] = np.random.default_rng(self.plan.seed).permutation(len(WORKFLOWS))
        beginning = list(dict.fromkeys([*firsts, *drawn.tolist()]))[: max(self.plan.n_initial, len(firsts))]
        left = [index for index in beginning if index not in taken]
        belief = self.belief()
        if left or belief is None:
            return Proposal(tuple(WORKFLOWS[left[0]].tolist()))
        index = choose(belief, self.plan.gp_beta, taken)
        mean, std = float(belief.mean[index]), float(belief.std[index])
        return Proposal(tuple(WORKFLOWS[index].tolist()), mean, std, float(belief.upper(self.plan.gp_beta)[index]))

    def run(self, train: Trainer, tell: Callable[[Search], None]) -> str:
        """Try workflows until a budget is spent or a signal comes.

        Args:
            train: Trains with one.
            tell: Called after each, with everything written.

        Returns:
            Why it ended: `n_workflows`, `total_episodes`, `duration`, or the name of a signal.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while (reason := self._spent()) is None:
            proposal = self.propose()
            workflow, number = workflow_name(proposal.order), len(self.trials) + 1
            name = f"{number:03d}_{workflow.replace(',', '-')}"
            self._under_way = workflow
            self.write()
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
            self.trials.append(
                Trial(
                    number=number,
                    workflow=workflow,
                    expected=proposal.expected,
                    deviation=proposal.deviation,
                    upper=proposal.upper,
                    folder=name,
                    **asdict(trained),
                )
            )
            self._under_way = None
            self.write()
            tell(self)
        return reason

    def write(self) -> None:
        """Replace search.csv and search.json."""
        best, belief = self.best, self.belief()
        expected = None if belief is None else _ranking(belief, self._taken())
        about = {
            **self._about,
            "budget": {"total_episodes": self.plan.total_episodes, "n_workflows": self.plan.n_workflows},
            "spent_episodes": self.episodes,
            "under_way": self._under_way,
            "best": None if best is None else asdict(best),
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

    def _refuse_another(self, there: dict[str, Any]) -> None:
        theirs, ours = there.get("settings", {}), self._about["settings"]
        differing = [
            f"{key} is {theirs.get(key)!r} there and {value!r} here"
            for key, value in ours.items()
            if theirs.get(key) != value
        ]
        if there and differing:
            raise ConfigError(
                f"{self.folder}: holds another search: {'; '.join(differing)}. "
                "Go on with the same settings, or search in another folder."
            )


def _left(budget: int | None, spent: int) -> int:
    return sys.maxsize if budget is None else budget - spent


def _ranking(belief: Belief, taken: Sequence[int]) -> list[dict[str, Any]]:
    """All workflows, the most promising first."""
    return [
        {
            "workflow": workflow_name(WORKFLOWS[i]),
            "mean": float(belief.mean[i]),
            "std": float(belief.std[i]),
            "tried": int(i) in taken,
        }
        for i in np.argsort(-belief.mean, kind="stable")
    ]
