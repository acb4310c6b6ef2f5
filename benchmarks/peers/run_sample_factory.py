"""Train with Sample Factory, sync or async, with two rollout workers.

Its processes never block on the driver, so they are stopped by SIGSTOP between windows, at the end of a training
iteration. Rollouts that are unfinished at that time continue in the next window.
"""

from __future__ import annotations

import signal
import tempfile
from functools import partial
from importlib import metadata
from typing import Any

import psutil
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

from benchmarks.peers.task import EPISODES, Gate, Task, make_env, read_task

WORKERS = 2
NEVER_S = 10**6
"""Longer than any measurement, so that the library writes no summaries and takes no stopped process for a hang."""


class GateObserver(AlgoObserver):  # type: ignore[misc]  # not installed where types are checked
    """Calls the gate after every training iteration."""

    def __init__(self, gate: Gate, steps_each: int) -> None:
        self._gate, self._steps_each = gate, steps_each

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        """Blocks the runner's process between windows."""
        returns = runner.policy_avg_stats.get("reward", [[]])[0]
        if not self._gate.keep_training(training_iteration_since_resume * self._steps_each, returns):
            runner.cfg.train_for_seconds = -1  # the runner checks it next, and ends


def send(number: signal.Signals) -> None:
    """Send a signal to all processes that the library has started."""
    for process in psutil.Process().children(recursive=True):
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def make_named(*_positional: Any, env: str, kwargs: dict[str, Any], **_keyword: Any) -> Any:
    """Make the env; ignores the name, config and render mode that the library passes."""
    return make_env(env, kwargs)


def flags(task: Task, folder: str) -> list[str]:
    """The shared settings by the library's names; its extras (recurrence, normalisation, V-trace) are off."""
    ppo = task.ppo
    steps = ppo.n_steps * task.n_envs
    settings: dict[str, Any] = {
        "env": "bench",
        "algo": "APPO",
        "experiment": "bench",
        "train_dir": folder,
        "restart_behavior": "overwrite",
        "device": "cpu",
        "seed": task.seed,
        "async_rl": task.variant["async"],
        "serial_mode": False,
        "num_workers": WORKERS,
        "num_envs_per_worker": task.n_envs // WORKERS,
        "worker_num_splits": 2,
        "policy_workers_per_policy": 1,
        "rollout": ppo.n_steps,
        "recurrence": 1,
        "batch_size": ppo.batch_size,
        "num_batches_per_epoch": steps // ppo.batch_size,
        "num_epochs": ppo.n_epochs,
        "shuffle_minibatches": True,
        "learning_rate": ppo.learning_rate,
        "stats_avg": EPISODES,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "ppo_clip_ratio": ppo.clip_range,
        "ppo_clip_value": 1e9,
        "exploration_loss_coeff": ppo.ent_coef,
        "value_loss_coeff": ppo.vf_coef,
        "max_grad_norm": ppo.max_grad_norm,
        "use_rnn": False,
        "with_vtrace": False,
        "normalize_input": False,
        "normalize_returns": False,
        "obs_scale": 255.0 if task.image else 1.0,
        "nonlinearity": "relu" if task.image else "tanh",
        "actor_critic_share_weights": task.image,
        "encoder_conv_architecture": "convnet_atari",
        "encoder_conv_mlp_layers": 512,
        "decorrelate_envs_on_one_worker": False,
        "with_wandb": False,
        "heartbeat_interval": NEVER_S,
        "heartbeat_reporting_interval": NEVER_S,
        "experiment_summaries_interval": NEVER_S,
        "save_every_sec": NEVER_S,
        "save_best_every_sec": NEVER_S,
        "train_for_env_steps": ppo.total_steps,
    }
    return [*(f"--{name}={value}" for name, value in settings.items()), "--encoder_mlp_layers", "64", "64"]


def main() -> None:
    """Train until the gate ends it."""
    task, stream = read_task()
    kwargs = {**task.env_kwargs, "channels_first": True} if task.image else task.env_kwargs
    register_env("bench", partial(make_named, env=task.env, kwargs=kwargs))
    with tempfile.TemporaryDirectory() as folder:
        argv = flags(task, folder)
        parser, _ = parse_sf_args(argv=argv)
        _, runner = make_runner(parse_full_cfg(parser, argv))
        gate = task.gate(
            stream,
            pause=partial(send, signal.SIGSTOP),
            resume=partial(send, signal.SIGCONT),
            library=f"sample-factory {metadata.version('sample-factory')}",
        )
        gate.keep_training(0, [])  # begins the warm-up window, because the first observer call comes after an iteration
        runner.register_observer(GateObserver(gate, task.ppo.n_steps * task.n_envs))
        runner.init()
        runner.run()


if __name__ == "__main__":
    main()
