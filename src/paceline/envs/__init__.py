"""Environments: making them, seeding them, and stepping many of them inside one worker."""

from __future__ import annotations

import gymnasium as gym

_BUSY = "paceline/Busy-v0"

if _BUSY not in gym.registry:
    gym.register(_BUSY, entry_point="paceline.envs.busy:Busy")
