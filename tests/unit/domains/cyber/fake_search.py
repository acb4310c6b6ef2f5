"""A search over workflows with a fake trainer and a simple surrogate model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paceline.domains.cyber.gp_ucb import Belief, Floats
from paceline.domains.cyber.search import INDEX, POINTS, Search, SearchPlan
from paceline.domains.cyber.trials import Trained
from paceline.domains.cyber.workflow import read_workflow

GOAL = 77


def nearest_seen(points: Floats, tried: Floats, seen: Floats) -> Belief:
    """Surrogate that predicts the reward of the nearest tried point; its deviation is the distance to that point."""
    distance = np.linalg.norm(points[:, None] - tried[None], axis=2)
    return Belief(seen[distance.argmin(1)], distance.min(1))


class Fake:
    """Trainer whose rewards grow towards the workflow GOAL. Returns a signal at the call number `stop_at`."""

    def __init__(self, stop_at: int = 0) -> None:
        self.calls: list[dict[str, Any]] = []
        self._stop_at = stop_at

    def __call__(
        self, workflow: str, folder: Path, *, warm: Path | None, episodes: int, seconds: float | None
    ) -> Trained | str:
        self.calls.append({"workflow": workflow, "folder": folder.name, "warm": warm and warm.name, "left": episodes})
        if len(self.calls) == self._stop_at:
            return "SIGINT"
        index = INDEX[read_workflow(workflow)]
        # Several workflows are equally far from the goal: the last term lets no two of them tie.
        reward = -10.0 * float(np.linalg.norm(POINTS[index] - POINTS[GOAL])) - 1e-6 * index
        return Trained(
            reward=reward, compliance=0.96, fixes=3.0, episodes=min(400, episodes), steps=40_000, wall_s=2.0,
            stop_reason="compliance >= 0.95 reached",
        )  # fmt: skip

    @property
    def workflows(self) -> list[str]:
        return [call["workflow"] for call in self.calls]


def make(folder: Path, **plan: Any) -> Search:
    return Search(folder, SearchPlan(**plan), {"settings": {"red_agent": "bline"}}, nearest_seen)


def no_word(search: Search) -> None:
    pass
