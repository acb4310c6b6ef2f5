"""The CybORG simulator (CAGE Challenge 2, Scenario2), installed by the user, as a Gymnasium env.

    paceline train ppo --env paceline.integrations.cyborg:CybORGEnv --env-kwargs red_agent=meander

CybORG is not on the package registry. It is imported only when an env is made.
"""

from __future__ import annotations

from paceline.integrations.cyborg.env import CybORGEnv
from paceline.integrations.cyborg.fast import ACCELERATIONS
from paceline.integrations.cyborg.install import Simulator, simulator

__all__ = ["ACCELERATIONS", "CybORGEnv", "Simulator", "simulator"]
