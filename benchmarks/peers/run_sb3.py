"""Train PPO with stable-baselines3, or with sbx (the same API over JAX), in windows or until the task is solved.

A single `learn` call runs all the time. The callback blocks it at the beginning of a rollout, so that a window consists
of whole iterations of the library's own loop.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor

from benchmarks.peers.task import Gate, Task, read_task


class GateCallback(BaseCallback):  # type: ignore[misc]  # not installed where types are checked
    """Calls the gate between two iterations."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate, self._stopped = gate, False

    def _on_rollout_start(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self._stopped = not self._gate.keep_training(self.num_timesteps, returns)

    def _on_step(self) -> bool:
        return not self._stopped


def policy(task: Task) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the network: two towers of 64x64 tanh, or the convolutions of the Nature paper."""
    if task.image:
        return "CnnPolicy", {}
    if task.variant.get("package") == "sbx":
        from flax import linen

        return "MlpPolicy", {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": linen.tanh}
    return "MlpPolicy", {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh}


def main() -> None:
    """Build the model and train until the gate ends it."""
    task, stream = read_task()
    package = task.variant.get("package", "stable_baselines3")
    if threads := task.variant.get("threads"):
        torch.set_num_threads(threads)
    kind = SubprocVecEnv if task.variant.get("subproc") else DummyVecEnv
    envs = VecMonitor(kind([task.env_maker(channels_first=True)] * task.n_envs))
    ppo, (name, arguments) = task.ppo, policy(task)
    model = importlib.import_module(package).PPO(
        name,
        envs,
        n_steps=ppo.n_steps,
        batch_size=ppo.batch_size,
        n_epochs=ppo.n_epochs,
        learning_rate=(lambda left: left * ppo.learning_rate) if ppo.linear else ppo.learning_rate,
        clip_range=(lambda left: left * ppo.clip_range) if ppo.linear else ppo.clip_range,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        ent_coef=ppo.ent_coef,
        vf_coef=ppo.vf_coef,
        max_grad_norm=ppo.max_grad_norm,
        policy_kwargs=arguments,
        device="cpu",
        seed=task.seed,
    )
    version = metadata.version("sbx-rl" if package == "sbx" else "stable-baselines3")
    gate = task.gate(stream, library=f"{package} {version}", threads=torch.get_num_threads())
    model.learn(total_timesteps=ppo.total_steps, callback=GateCallback(gate))
    envs.close()


if __name__ == "__main__":
    main()
