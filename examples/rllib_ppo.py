"""The other route to a cluster: any env that Paceline can name, trained by RLlib's own PPO.

    python examples/rllib_ppo.py --env CartPole-v1 --iterations 20
    python examples/rllib_ppo.py --env my_package:MyEnv --env-kwargs '{"size": 9}' --env-runners 2

Needs an environment of its own, since RLlib pins another Gymnasium: `make test-rllib` makes one and runs this. On a
cluster give it `--address auto`. For Paceline's own training there see docs/how-to/several-machines.md. RLlib knows
nothing of the action masks in `info`: games whose illegal moves are errors need a model of its own for that.
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
    """PPO over the registered env."""
    made: Any = PPOConfig()
    made.environment(env=NAME, env_config={"env": arguments.env, "kwargs": json.loads(arguments.env_kwargs)})
    made.env_runners(num_env_runners=arguments.env_runners, num_envs_per_env_runner=arguments.envs_per_runner)
    made.learners(num_learners=0)
    made.training(train_batch_size_per_learner=arguments.batch, minibatch_size=arguments.batch // 4, num_epochs=4)
    made.debugging(log_level="ERROR", seed=arguments.seed)
    return made


def main() -> None:
    """Register, train, and say how it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="as `paceline train --env` takes it")
    parser.add_argument("--env-kwargs", default="{}", help="arguments of the env, JSON")
    parser.add_argument("--env-runners", type=int, default=1, help="actors that step envs; 0 for none")
    parser.add_argument("--envs-per-runner", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2048, help="steps of an iteration")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--address", help="of a Ray cluster; a local one is started without it")
    arguments = parser.parse_args()

    # Called in every actor: an env is made there, from the same words as by `paceline train`.
    register_env(NAME, lambda config: EnvRecipe(source=config["env"], kwargs=dict(config["kwargs"])).make())
    # Without an address Ray would join whatever cluster runs on this machine.
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
