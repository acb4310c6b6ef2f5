"""Train with Tianshou's PPO and trainer, which blocks between windows at the beginning of a training step."""

from __future__ import annotations

from collections import deque
from importlib import metadata
from typing import Any

import gymnasium as gym
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import ModuleWithVectorOutput, Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import Tensor, nn

from benchmarks.peers.task import EPISODES, Gate, Task, read_task


class TrainingEnded(Exception):
    """The gate ended the training."""


class Counting(Collector):  # type: ignore[misc]  # not installed where types are checked
    """A collector that keeps the returns of the newest episodes."""

    returns: deque[float]

    def collect(self, *args: Any, **kwargs: Any) -> Any:
        """As in `Collector`."""
        stats = super().collect(*args, **kwargs)
        self.returns.extend(map(float, stats.returns))
        return stats


class NatureTrunk(ModuleWithVectorOutput):  # type: ignore[misc]  # not installed where types are checked
    """The convolutions of the Nature paper, in the form that Tianshou's actors and critics need."""

    def __init__(self, channels: int) -> None:
        super().__init__(512)
        self.net = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:  # noqa: ARG002
        """Features [N, 512]."""
        return self.net(torch.as_tensor(obs, dtype=torch.float32) / 255.0), state


def algorithm(task: Task, env: gym.Env[Any, Any]) -> Any:
    """PPO with the shared settings by Tianshou's names."""
    ppo, space, actions = task.ppo, env.observation_space, env.action_space
    if not isinstance(space, gym.spaces.Box) or not isinstance(actions, gym.spaces.Discrete):
        raise TypeError(f"must be Box and Discrete (got {space} and {actions})")
    if task.image:
        actor_net = critic_net = NatureTrunk(space.shape[0])
    else:
        shape: dict[str, Any] = {"state_shape": space.shape, "hidden_sizes": [64, 64], "activation": nn.Tanh}
        actor_net, critic_net = Net(**shape), Net(**shape)
    actor = DiscreteActor(preprocess_net=actor_net, action_shape=int(actions.n), softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=actions, observation_space=space)
    optim = AdamOptimizerFactory(lr=ppo.learning_rate)
    if ppo.linear:
        optim.with_lr_scheduler_factory(LRSchedulerFactoryLinear(1, ppo.total_steps, ppo.n_steps * task.n_envs))
    return PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=critic_net),
        optim=optim,
        eps_clip=ppo.clip_range,
        vf_coef=ppo.vf_coef,
        ent_coef=ppo.ent_coef,
        max_grad_norm=ppo.max_grad_norm,
        gae_lambda=ppo.gae_lambda,
        gamma=ppo.gamma,
        max_batchsize=ppo.batch_size,
    )


def main() -> None:
    """Build the trainer and train until the gate ends it."""
    task, stream = read_task()
    torch.manual_seed(task.seed)
    maker = task.env_maker(channels_first=True)
    envs = (SubprocVectorEnv if task.variant.get("subproc") else DummyVectorEnv)([maker] * task.n_envs)
    envs.seed(task.seed)
    made = algorithm(task, maker())
    steps = task.ppo.n_steps * task.n_envs
    collector = Counting(made, envs, VectorReplayBuffer(steps, task.n_envs))
    collector.returns = deque(maxlen=EPISODES)
    collector.reset()
    version = f"tianshou {metadata.version('tianshou')}"
    gate: Gate = task.gate(stream, library=version, threads=torch.get_num_threads())

    def hold(_epoch: int, env_steps: int) -> None:
        if not gate.keep_training(env_steps, collector.returns):
            raise TrainingEnded

    try:
        made.run_training(
            OnPolicyTrainerParams(
                training_collector=collector,
                max_epochs=1,
                epoch_num_steps=task.ppo.total_steps,
                collection_step_num_env_steps=steps,
                batch_size=task.ppo.batch_size,
                update_step_num_repetitions=task.ppo.n_epochs,
                training_fn=hold,
                show_progress=False,
                verbose=False,
            )
        )
    except TrainingEnded:
        envs.close()


if __name__ == "__main__":
    main()
