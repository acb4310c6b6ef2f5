"""Train PPO with Paceline's public API, in windows or until the task is solved."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

# Before numpy and torch are imported, as the command line does.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

from benchmarks.peers.task import Gate, Task, read_task  # noqa: E402
from paceline import PPO, TrainConfig  # noqa: E402


class GateCallback:
    """Calls the gate after every update."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def on_update(self, moment: Any) -> bool:
        """Blocks between windows; False ends the run."""
        # The library reports the mean of the last 100 episodes.
        mean = moment.mean_return if moment.episodes >= 100 else None
        return self._gate.keep_training(moment.steps, [] if mean is None else [mean] * 100)


ENVS = {"busy": "benchmarks.peers.busy_env:BusyEnv", "breakout": "benchmarks.peers.breakout_env:BreakoutEnv"}


def settings(task: Task) -> dict[str, Any]:
    """Settings by Paceline's names: those of its config file if the task names one, else the shared ones."""
    own = {"seed": task.seed, "n_eval_episodes": 0, "eval_freq": 0, "quiet": True, **task.variant}
    if task.config is not None:
        config = TrainConfig.from_yaml(task.config, **own, output_dir=None)
        return {key: value for section in config.to_dict().values() for key, value in section.items()}
    ppo = task.ppo
    return {
        "env": ENVS.get(task.env, task.env),
        "env_kwargs": task.env_kwargs,
        "n_envs": task.n_envs,
        "n_steps": ppo.n_steps,
        "batch_size": ppo.batch_size,
        "n_epochs": ppo.n_epochs,
        "learning_rate": ppo.learning_rate,
        "lr_schedule": "linear" if ppo.linear else "constant",
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip_range": ppo.clip_range,
        "ent_coef": ppo.ent_coef,
        "vf_coef": ppo.vf_coef,
        "max_grad_norm": ppo.max_grad_norm,
        "normalize_reward": False,
        **own,
    }


def main() -> None:
    """Train until the gate ends it."""
    task, stream = read_task()
    flat = settings(task)
    gate = task.gate(stream, library=f"paceline {metadata.version('paceline')}", threads=1)
    gate.keep_training(0, [])  # begins the warm-up window, because the first callback comes after an iteration
    with PPO(flat.pop("env"), **{key: value for key, value in flat.items() if key != "algo"}) as agent:
        steps = None if task.config is not None else task.ppo.total_steps
        agent.learn(total_timesteps=steps, callbacks=[GateCallback(gate)])


if __name__ == "__main__":
    main()
