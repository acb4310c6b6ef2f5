"""Environments: make them, seed them, and step many of them inside one worker. Registers the built-in env ids."""

from __future__ import annotations

import gymnasium as gym

_BUSY = "paceline/Busy-v0"
_GAMES = {
    "paceline/Ludo-v0": "ludo",
    "paceline/ConnectFour-v0": "connect_four",
    "paceline/TicTacToe-v0": "tic_tac_toe",
}
_CYBER = "paceline/NetworkDefence-v0"
_WORKFLOW = "paceline/WorkflowDefence-v0"

if _BUSY not in gym.registry:
    gym.register(_BUSY, entry_point="paceline.envs.busy:Busy")
for _env_id, _game in _GAMES.items():
    if _env_id not in gym.registry:
        # Registered by import path, so that a game's code is imported only when the env is made.
        gym.register(_env_id, entry_point="paceline.domains.games.env:GameEnv", kwargs={"game": _game})
if _CYBER not in gym.registry:
    gym.register(
        _CYBER,
        entry_point="paceline.domains.cyber.env:NetworkDefence",
        vector_entry_point="paceline.domains.cyber.vector:NetworkDefenceVector",
    )
if _WORKFLOW not in gym.registry:
    gym.register(
        _WORKFLOW,
        entry_point="paceline.domains.cyber.conditioned:WorkflowDefence",
        vector_entry_point="paceline.domains.cyber.conditioned:WorkflowDefenceVector",
    )
