"""PPO settings on CartPole-v1 that several suites share."""

from __future__ import annotations

from typing import Any

SAME_NAMES: dict[str, Any] = {
    "n_steps": 128,
    "batch_size": 1024,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize_advantage": True,
}
"""Settings with the same name in Paceline and in stable-baselines3."""

CARTPOLE_PPO: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 32,
    "seed": 0,
    "hidden_sizes": [64, 64],
    "shared": list(SAME_NAMES),
    **SAME_NAMES,
}
"""As `harness/windows_paceline.py` and `peers/windows_sb3.py` read them; `shared` lists the settings to pass on."""

SPEED_PPO: dict[str, Any] = {
    "n_steps": 128,
    "batch_size": 1024,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "normalize_reward": False,
}
"""Paceline's own settings in measurements of speed. Named, so that results stay comparable when defaults change."""
