"""A program that steps CartPole in worker processes, for `side_by_side`: victims.py gymnasium|sb3|paceline ORDER RUN.

Runs in the library's own environment, and so imports nothing of ours unless it is ours.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gymnasium as gym


class Obedient(gym.Wrapper):  # type: ignore[type-arg]
    """CartPole whose step hangs in the first worker that finds the file."""

    def __init__(self, order: str) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._order = order

    def step(self, action: Any) -> Any:
        """As the env's own, unless there is an order."""
        if os.path.exists(self._order):
            try:
                os.unlink(self._order)
            except FileNotFoundError:
                pass
            else:
                time.sleep(3600)
        return super().step(action)


def use_gymnasium(order: str) -> None:
    """Its AsyncVectorEnv, stepped as its documentation does."""
    envs = gym.vector.AsyncVectorEnv([lambda: Obedient(order)] * 4)
    envs.reset(seed=0)
    print("READY", flush=True)
    while True:
        envs.step(envs.action_space.sample())


def use_sb3(order: str) -> None:
    """Its PPO on its SubprocVecEnv."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import SubprocVecEnv

    class Ready(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 4 * 300:
                print("READY", flush=True)
            return True

    envs = SubprocVecEnv([lambda: Obedient(order)] * 4)
    PPO("MlpPolicy", envs, n_steps=64, device="cpu").learn(10**9, callback=Ready())


def use_paceline(order: str, run: str) -> None:
    """Our PPO on two workers."""
    from paceline import PPO

    class Ready:
        def on_update(self, moment: Any) -> None:
            if moment.iteration == 3:
                print("READY", flush=True)

    agent = PPO(
        lambda: Obedient(order), n_envs=4, num_workers=2, n_steps=64, n_eval_episodes=0, env_timeout_s=10.0,
        native_vector="never", output_dir=run, env_threads=1,
    )  # fmt: skip
    agent.learn(duration="25s", callbacks=[Ready()])
    print(f"finished: {agent.summary.steps} steps, {agent.summary.restarts} worker(s) replaced", flush=True)


if __name__ == "__main__":
    match sys.argv[1]:
        case "gymnasium":
            use_gymnasium(sys.argv[2])
        case "sb3":
            use_sb3(sys.argv[2])
        case "paceline":
            use_paceline(sys.argv[2], sys.argv[3])
