"""Train PPO or DQN with stable-baselines3, in windows that the suites `sb3_ppo` and `dqn` ask for.

A single `learn` call runs all the time. The callback blocks it at the beginning of a rollout, so that a window consists
of whole iterations of the library's own loop. With `theirs` in the settings it trains DQN.
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

from benchmarks.harness.windows import Windows, reply_stream


class WindowCallback(BaseCallback):  # type: ignore[misc]  # not installed where types are checked
    """At the beginning of a rollout, reports a window that has ended and blocks until the next."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def _on_rollout_start(self) -> None:
        if not self._windows.keep_training(self.num_timesteps):
            raise SystemExit(0)

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Build the model from the settings in the first argument, and train until stdin is closed."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = reply_stream()
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
    model.learn(total_timesteps=10**12, callback=WindowCallback(Windows(stream, library=library, threads=threads)))


if __name__ == "__main__":
    main()
