"""Train with RLlib's PPO, with env runners in the driver (0) or in actors; an iteration is a `train` call."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from benchmarks.peers.task import EPISODES, Task, read_task


class Floats(gym.ObservationWrapper[Any, Any, Any]):
    """Scales pixels to the range from 0 to 1, because RLlib's convolutions do not accept bytes."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0.0, 1.0, env.observation_space.shape, np.float32)

    def observation(self, observation: Any) -> Any:
        """Scale an observation."""
        return observation.astype(np.float32) / np.float32(255.0)


def model(task: Task) -> DefaultModelConfig:
    """Two towers of 64x64 tanh, or the convolutions of the Nature paper under two heads."""
    if task.image:
        return DefaultModelConfig(
            conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            conv_activation="relu",
            head_fcnet_hiddens=[512],
            head_fcnet_activation="relu",
            vf_share_layers=True,
        )
    return DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)


def config(task: Task) -> PPOConfig:
    """The shared settings by RLlib's names; its extras (KL penalty, value clipping) are off."""
    ppo, runners = task.ppo, int(task.variant["runners"])
    made: Any = PPOConfig()
    made.environment(env="bench")
    made.env_runners(
        num_env_runners=runners,
        num_envs_per_env_runner=task.n_envs // max(runners, 1),
        rollout_fragment_length=ppo.n_steps,
        sample_timeout_s=600.0,
    )
    made.learners(num_learners=0)
    made.rl_module(model_config=model(task))
    made.training(
        train_batch_size_per_learner=ppo.n_steps * task.n_envs,
        minibatch_size=ppo.batch_size,
        num_epochs=ppo.n_epochs,
        lr=[[0, ppo.learning_rate], [ppo.total_steps, 0.0]] if ppo.linear else ppo.learning_rate,
        gamma=ppo.gamma,
        lambda_=ppo.gae_lambda,
        clip_param=ppo.clip_range,
        vf_loss_coeff=ppo.vf_coef,
        vf_clip_param=float("inf"),
        entropy_coeff=ppo.ent_coef,
        use_kl_loss=False,
        grad_clip=ppo.max_grad_norm,
        grad_clip_by="global_norm",
    )
    made.reporting(min_time_s_per_iteration=0, metrics_num_episodes_for_smoothing=EPISODES)
    made.debugging(log_level="ERROR", seed=task.seed)
    return made


def main() -> None:
    """Build the algorithm and train until the gate ends it."""
    task, stream = read_task()
    register_env("bench", lambda _: Floats(task.env_maker()()) if task.image else task.env_maker()())
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = config(task).build_algo()
    gate = task.gate(stream, library=f"ray {ray.__version__}")
    steps, returns = 0, deque[float](maxlen=EPISODES)
    while gate.keep_training(steps, returns):
        result = algorithm.train()
        steps = int(result["num_env_steps_sampled_lifetime"])
        ended = result["env_runners"]  # the mean over episodes that ended in this iteration, if there are any
        returns.extend([float(ended.get("episode_return_mean", 0.0))] * int(ended.get("num_episodes", 0)))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
