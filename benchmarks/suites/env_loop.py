"""What does the step loop add to each env step? `SingleEnvs` against a bare loop that stores nothing.

make bench-env-loop
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from paceline.envs.block import BlockSetup
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.memory.rows import Row
from paceline.spec import EnvSpec

STEPS = 128


def main() -> None:
    """Alternate the two loops, so that noise of the machine affects both, and print microseconds per env step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1", help="an env with Discrete actions")
    parser.add_argument("--n-envs", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    recipe = EnvRecipe(source=args.env, native_vector="never")
    spec = recipe.probe()
    actions = np.random.default_rng(0).integers(0, spec.action.nvec[0], (STEPS, args.n_envs))
    loops = {"bare": bare_loop(recipe, spec, actions), "block": block_loop(recipe, spec, actions)}
    cost_us: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(args.rounds):
        for name, loop in loops.items():
            began = time.thread_time()
            loop()
            cost_us[name].append((time.thread_time() - began) / actions.size * 1e6)
    for name, values in cost_us.items():
        print(f"{name:6} median {statistics.median(values):6.2f}  best {min(values):6.2f}  us per env step")
    # Differences round by round, because noise affects both loops of a round alike.
    added = [block - bare for bare, block in zip(cost_us["bare"], cost_us["block"], strict=True)]
    print(f"added  median {statistics.median(added):6.2f}  quartiles {statistics.quantiles(added, n=4)[::2]}")


def bare_loop(recipe: EnvRecipe, spec: EnvSpec, actions: np.ndarray) -> Callable[[], None]:
    """Step and reset with the same seeds as `SingleEnvs`, without storing anything."""
    n, start = actions.shape[1], spec.action.start
    envs = [recipe.make() for _ in range(n)]
    episode = [0] * n
    rows = (actions + start).tolist()
    for i, env in enumerate(envs):
        env.reset(seed=episode_seed(0, i, 0))
    steps = [env.step for env in envs]

    def loop() -> None:
        for row in rows:
            for i, step in enumerate(steps):
                _, _, terminated, truncated, _ = step(row[i])
                if terminated or truncated:
                    episode[i] += 1
                    envs[i].reset(seed=episode_seed(0, i, episode[i]))

    return loop


def block_loop(recipe: EnvRecipe, spec: EnvSpec, actions: np.ndarray) -> Callable[[], None]:
    """The loop of a training."""
    n = actions.shape[1]
    rows = [blank_row(spec, n) for _ in range(STEPS + 1)]
    episode = np.zeros(n, np.int64)
    setup = BlockSetup(recipe=recipe, spec=spec, seed=0, first_group=0, groups=1, group_size=n, episode=episode)
    block = SingleEnvs(setup)
    block.reset(rows[0])

    def loop() -> None:
        for action, row, after in zip(actions, rows, rows[1:], strict=False):
            block.step(action, row, after)

    return loop


def blank_row(spec: EnvSpec, n: int) -> Row:
    """A row of a slot, in ordinary memory."""
    flags = [np.zeros(n, np.bool_) for _ in range(3)]
    reward, log_prob, value = (np.zeros(n, np.float32) for _ in range(3))
    obs = {leaf.name: np.zeros((n, *leaf.shape), leaf.dtype) for leaf in spec.obs}
    mask = np.zeros((n, spec.action.mask_size), np.bool_) if spec.masked else None
    action = np.zeros((n, *spec.action.shape), spec.action.dtype)
    return Row(obs, mask, action, reward, flags[0], flags[1], flags[2], log_prob, value, np.zeros(n, np.int8))


if __name__ == "__main__":
    main()
