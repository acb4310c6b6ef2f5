"""Trains with stable-baselines3, one window per line on stdin.

`sb3_ppo.py` and `dqn.py` start it in an environment of its own.

Imports nothing of Paceline. One `learn` call runs all the time: the callback holds it where a rollout begins, so a
window is made of whole iterations of the library's own loop.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import stable_baselines3
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv
from windows import Windows, answers


class Hold(BaseCallback):  # type: ignore[misc]  # not installed where types are checked
    """Asks, where a rollout begins, whether the window is over, and waits for the next."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def _on_rollout_start(self) -> None:
        if not self._windows.go_on(self.num_timesteps):
            raise SystemExit(0)

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Build the model from the settings in the first argument, say so, and obey."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = answers()
    envs = make_vec_env(
        settings["env"],
        n_envs=settings["n_envs"],
        seed=settings["seed"],
        vec_env_cls=DummyVecEnv,
        env_kwargs={"disable_env_checker": True},  # as Paceline does
    )
    sizes = settings["hidden_sizes"]
    shared = {name: settings[name] for name in settings["shared"]}
    if "theirs" in settings:
        network = {"net_arch": sizes}
        model = DQN("MlpPolicy", envs, policy_kwargs=network, device="cpu", seed=0, **shared, **settings["theirs"])
    else:
        network = {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": torch.nn.Tanh}
        model = PPO("MlpPolicy", envs, policy_kwargs=network, device="cpu", seed=settings["seed"], **shared)
    threads = torch.get_num_threads()
    library = f"stable-baselines3 {stable_baselines3.__version__}"
    model.learn(total_timesteps=10**12, callback=Hold(Windows(stream, library=library, threads=threads)))


if __name__ == "__main__":
    main()
