"""Environments: make them, seed them, and step many of them inside one worker. Registers the built-in env ids."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

_GAME, _CYBER = "paceline.domains.games.env:GameEnv", "paceline.domains.cyber"
_BUILT_IN: dict[str, dict[str, Any]] = {
    "paceline/Busy-v0": {"entry_point": "paceline.envs.busy:Busy"},
    "paceline/Ludo-v0": {"entry_point": _GAME, "kwargs": {"game": "ludo"}},
    "paceline/ConnectFour-v0": {"entry_point": _GAME, "kwargs": {"game": "connect_four"}},
    "paceline/TicTacToe-v0": {"entry_point": _GAME, "kwargs": {"game": "tic_tac_toe"}},
    "paceline/NetworkDefence-v0": {
        "entry_point": f"{_CYBER}.env:NetworkDefence",
        "vector_entry_point": f"{_CYBER}.vector:NetworkDefenceVector",
    },
    "paceline/WorkflowDefence-v0": {
        "entry_point": f"{_CYBER}.conditioned:WorkflowDefence",
        "vector_entry_point": f"{_CYBER}.conditioned:WorkflowDefenceVector",
    },
}
"""Arguments of `gym.register` by env id: import paths, so that an env's code is imported only when the env is made."""

for _env_id, _how in _BUILT_IN.items():
    if _env_id not in gym.registry:
        gym.register(_env_id, **_how)
