"""Step CartPole in worker processes of one library, for `side_by_side`.

    python -m benchmarks.faults.victims gymnasium|sb3|paceline REQUEST RUN

A step hangs when the file REQUEST exists. Runs in the virtual environment of the library, so it imports Paceline only
for Paceline.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gymnasium as gym


class HangingEnv(gym.Wrapper):  # type: ignore[type-arg]
    """CartPole whose step hangs in the first worker that finds the request file."""

    def __init__(self, request: str) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._request = request

    def step(self, action: Any) -> Any:
        """Step CartPole, or hang on request."""
        if os.path.exists(self._request):
            try:
                os.unlink(self._request)
            except FileNotFoundError:
                pass
            else:
                time.sleep(3600)
        return super().step(action)


def use_gymnasium(request: str) -> None:
    """AsyncVectorEnv with random actions, as in its documentation."""
    envs = gym.vector.AsyncVectorEnv([lambda: HangingEnv(request)] * 4)
    envs.reset(seed=0)
    print("READY", flush=True)
    while True:
        envs.step(envs.action_space.sample())


def use_sb3(request: str) -> None:
    """SB3's PPO on SubprocVecEnv."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import SubprocVecEnv

    class Ready(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 4 * 300:
                print("READY", flush=True)
            return True

    envs = SubprocVecEnv([lambda: HangingEnv(request)] * 4)
    PPO("MlpPolicy", envs, n_steps=64, device="cpu").learn(10**9, callback=Ready())


def use_paceline(request: str, run: str) -> None:
    """Paceline's PPO on two workers."""
    from paceline import PPO

    class Ready:
        def on_update(self, moment: Any) -> None:
            if moment.iteration == 3:
                print("READY", flush=True)

    agent = PPO(
        lambda: HangingEnv(request), n_envs=4, num_workers=2, n_steps=64, n_eval_episodes=0, env_timeout_s=10.0,
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
