"""Trains an env of Paceline with RLlib's PPO instead of Paceline's own, on one machine or a Ray cluster.

    python examples/rllib_ppo.py --env CartPole-v1 --iterations 20
    python examples/rllib_ppo.py --env my_package:MyEnv --env-kwargs '{"size": 9}' --env-runners 2

It needs a separate virtual environment, because RLlib requires another version of Gymnasium: `make test-rllib` creates
one and runs this file. On a cluster pass `--address auto`. Paceline's own training on a cluster is described in
docs/how-to/several-machines.md. RLlib ignores action masks in `info`: an env that raises for illegal actions needs an
RLlib model with action masking.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from paceline.envs.make import EnvRecipe

NAME = "paceline-env"


def settings(arguments: argparse.Namespace) -> Any:
    """Return RLlib's config for PPO on the registered env."""
    made: Any = PPOConfig()
    made.environment(env=NAME, env_config={"env": arguments.env, "kwargs": json.loads(arguments.env_kwargs)})
    made.env_runners(num_env_runners=arguments.env_runners, num_envs_per_env_runner=arguments.envs_per_runner)
    made.learners(num_learners=0)
    made.training(train_batch_size_per_learner=arguments.batch, minibatch_size=arguments.batch // 4, num_epochs=4)
    made.debugging(log_level="ERROR", seed=arguments.seed)
    return made


def main() -> None:
    """Register the env, train, and print the mean return of each iteration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="env id or import path, as for `paceline train --env`")
    parser.add_argument("--env-kwargs", default="{}", help="arguments of the env, as JSON")
    parser.add_argument(
        "--env-runners", type=int, default=1, help="Ray actors that step envs; 0 steps them in the driver"
    )
    parser.add_argument("--envs-per-runner", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2048, help="env steps per iteration")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--address", help="address of a Ray cluster; without it a local Ray is started")
    arguments = parser.parse_args()

    # RLlib calls the function in every actor, which makes the env from the same arguments as `paceline train`.
    register_env(NAME, lambda config: EnvRecipe(source=config["env"], kwargs=dict(config["kwargs"])).make())
    # "local" starts a new Ray; without an address Ray would connect to a cluster that runs on this machine.
    where: dict[str, Any] = {"address": arguments.address or "local"}
    if not arguments.address:
        where["include_dashboard"] = False
    ray.init(logging_level="ERROR", **where)
    algorithm = settings(arguments).build_algo()
    try:
        for iteration in range(1, arguments.iterations + 1):
            result = algorithm.train()
            score = result.get("env_runners", {}).get("episode_return_mean", float("nan"))
            steps = int(result.get("num_env_steps_sampled_lifetime", 0))
            sys.stdout.write(f"iteration {iteration}: {steps:,} steps, mean return {score:.1f}\n")
            sys.stdout.flush()
    finally:
        algorithm.stop()
        ray.shutdown()


if __name__ == "__main__":
    main()
