"""PPO in one file in the style of CleanRL: gymnasium vector envs and eager torch.

Written for this comparison, because the cleanrl package does not install on Python 3.11. Like CleanRL it treats a
truncated episode as a terminated one.
"""

from __future__ import annotations

from collections import deque
from importlib import metadata
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.peers.networks import ActorCritic
from benchmarks.peers.task import Task, read_task


class Agent(ActorCritic):
    """The shared network with CleanRL's action function."""

    def act(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Action (sampled unless given), its log probability, entropy and value, each [N]."""
        features = self.features(obs)
        policy = Categorical(logits=self.actor(features))
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action), policy.entropy(), self.critic(features).squeeze(-1)


def make_envs(task: Task) -> Any:
    """Gymnasium's vector env of the task's env, or envpool's."""
    if task.variant.get("envpool"):
        import envpool

        return envpool.make_gymnasium(task.variant["envpool"], num_envs=task.n_envs, seed=task.seed)
    makers = [task.env_maker(channels_first=True)] * task.n_envs
    kind = AsyncVectorEnv if task.variant.get("async") else SyncVectorEnv
    return kind(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def main() -> None:
    """Train until the gate ends it."""
    task, stream = read_task()
    ppo, n_envs, n_steps = task.ppo, task.n_envs, task.ppo.n_steps
    if threads := task.variant.get("threads"):
        torch.set_num_threads(threads)
    np.random.seed(task.seed)  # noqa: NPY002  (as CleanRL does)
    torch.manual_seed(task.seed)
    envs = make_envs(task)
    single: Any = envs.observation_space if task.variant.get("envpool") else envs.single_observation_space
    actions_space: Any = envs.action_space if task.variant.get("envpool") else envs.single_action_space
    if not isinstance(actions_space, gym.spaces.Discrete):
        raise TypeError(f"actions must be Discrete (got {actions_space})")
    agent = Agent(single.shape, int(actions_space.n), image=task.image)
    optimizer = torch.optim.Adam(agent.parameters(), lr=ppo.learning_rate, eps=1e-5)

    obs = torch.zeros((n_steps, n_envs, *single.shape))
    actions = torch.zeros((n_steps, n_envs), dtype=torch.long)
    log_probs, rewards, ends, values = (torch.zeros((n_steps, n_envs)) for _ in range(4))
    returns: deque[float] = deque(maxlen=100)
    running = np.zeros(n_envs)
    steps = 0
    next_obs = torch.as_tensor(envs.reset(seed=task.seed)[0] if not task.variant.get("envpool") else envs.reset()[0])
    next_end = torch.zeros(n_envs)
    made = f"cleanrl style, gymnasium {metadata.version('gymnasium')}"
    if task.variant.get("envpool"):
        made = f"cleanrl style, envpool {metadata.version('envpool')}"
    gate = task.gate(stream, library=made, threads=torch.get_num_threads())

    while gate.keep_training(steps, returns):
        left = max(0.0, 1.0 - steps / ppo.total_steps) if ppo.linear else 1.0
        optimizer.param_groups[0]["lr"] = left * ppo.learning_rate
        for t in range(n_steps):
            obs[t], ends[t] = next_obs, next_end
            with torch.no_grad():
                actions[t], log_probs[t], _, values[t] = agent.act(obs[t])
            seen, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
            ended = np.logical_or(terminated, truncated)
            rewards[t] = torch.as_tensor(reward)
            next_obs, next_end = torch.as_tensor(seen), torch.as_tensor(ended, dtype=torch.float32)
            running += reward
            for i in np.flatnonzero(ended):
                returns.append(float(running[i]))
                running[i] = 0.0
        steps += n_steps * n_envs

        with torch.no_grad():
            after, carry = agent.value(next_obs.float()), torch.zeros(n_envs)
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(n_steps)):
                alive = 1.0 - (next_end if t == n_steps - 1 else ends[t + 1])
                follow = after if t == n_steps - 1 else values[t + 1]
                delta = rewards[t] + ppo.gamma * follow * alive - values[t]
                advantages[t] = carry = delta + ppo.gamma * ppo.gae_lambda * alive * carry
            targets = (advantages + values).flatten()

        flat_obs, flat_actions = obs.flatten(0, 1), actions.flatten()
        flat_log_probs, flat_advantages = log_probs.flatten(), advantages.flatten()
        order = np.arange(n_steps * n_envs)
        for _ in range(ppo.n_epochs):
            np.random.shuffle(order)  # noqa: NPY002
            for first in range(0, len(order), ppo.batch_size):
                rows = order[first : first + ppo.batch_size]
                _, log_prob, entropy, value = agent.act(flat_obs[rows], flat_actions[rows])
                ratio = (log_prob - flat_log_probs[rows]).exp()
                advantage = flat_advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - ppo.clip_range, 1 + ppo.clip_range)
                policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
                value_loss = 0.5 * (value - targets[rows]).square().mean()
                loss = policy_loss + ppo.vf_coef * value_loss - ppo.ent_coef * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), ppo.max_grad_norm)
                optimizer.step()
    envs.close()


if __name__ == "__main__":
    main()
