"""Train PPO with PufferLib's trainer and vector envs, in one process or on two workers.

PufferLib resets an env in an extra step that ignores the action; that step is counted, as the library counts it. With
`linear` the learning rate falls as a cosine, the only schedule of the library.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.networks import ActorCritic
from benchmarks.peers.task import Task, read_task

WORKERS = 2
NEVER = 10**12
"""More updates than any measurement has, so that the library writes no checkpoints."""


class Policy(ActorCritic):
    """The shared network with the methods that the trainer calls."""

    def forward(self, obs: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Logits and values."""
        features = self.features(obs)
        return self.actor(features), self.critic(features)

    forward_eval = forward


def settings(task: Task, folder: str) -> dict[str, Any]:
    """The shared settings by PufferLib's names; its extras (priorities, value clipping) are off."""
    ppo = task.ppo
    return {
        "env": "bench",
        "data_dir": folder,
        "checkpoint_interval": NEVER,
        "device": "cpu",
        "cpu_offload": False,
        "precision": "float32",
        "torch_deterministic": True,
        "seed": task.seed,
        "use_rnn": False,
        "compile": False,
        "batch_size": "auto",
        "bptt_horizon": ppo.n_steps,
        "minibatch_size": ppo.batch_size,
        "max_minibatch_size": ppo.batch_size,
        "update_epochs": ppo.n_epochs,
        "total_timesteps": ppo.total_steps,
        "optimizer": "adam",
        "learning_rate": ppo.learning_rate,
        "anneal_lr": ppo.linear,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip_coef": ppo.clip_range,
        "vf_coef": ppo.vf_coef,
        "vf_clip_coef": 1e9,
        "ent_coef": ppo.ent_coef,
        "max_grad_norm": ppo.max_grad_norm,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "prio_alpha": 0.0,
        "prio_beta0": 1.0,
    }


def main() -> None:
    """Build the trainer and train until the gate ends it."""
    task, stream = read_task()
    if threads := task.variant.get("threads"):
        torch.set_num_threads(threads)
    torch.manual_seed(task.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # on import the library creates a link in the current folder
        import pufferlib.emulation
        import pufferlib.pufferl
        import pufferlib.vector

        maker = task.env_maker(channels_first=True)

        def make(buf: Any = None, seed: int = 0) -> Any:
            env = pufferlib.EpisodeStats(maker())
            return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)

        backend: dict[str, Any] = {"backend": pufferlib.vector.Serial}
        if task.variant.get("workers"):
            # Half of the envs per batch, which is the library's default.
            backend = {"backend": pufferlib.vector.Multiprocessing, "num_workers": WORKERS, "batch_size": "auto"}
        envs = pufferlib.vector.make(make, num_envs=task.n_envs, seed=task.seed, **backend)
        policy = Policy(envs.single_observation_space.shape, int(envs.single_action_space.n), image=task.image)
        trainer = pufferlib.pufferl.PuffeRL(settings(task, folder), envs, policy)
        gate = task.gate(stream, library=f"pufferlib {metadata.version('pufferlib')}", threads=torch.get_num_threads())
        returns: deque[float] = deque(maxlen=100)
        while gate.keep_training(trainer.global_step, returns):
            returns.extend(trainer.evaluate().pop("episode_return", []))
            trainer.train()
        trainer.close()


if __name__ == "__main__":
    main()
