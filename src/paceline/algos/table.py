"""The algorithms: one file each, and one line in this dict."""

from __future__ import annotations

from paceline.algos.ppo import PPOLearner

LEARNERS = {"ppo": PPOLearner}
