"""Do the hand-written kernels pay? Microseconds of acting, learning and GAE, each next to its plain form.

make bench-kernels
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.nets.array_net import ArrayNet, NumpyMLP, TorchNet
from paceline.nets.flat import FlatGradient, move_parameters, size_of
from paceline.nets.mlp import MLPPolicy
from paceline.ops.distributions import head_for
from paceline.ops.returns import gae
from paceline.spec import EnvSpec


def compare(rounds: int, **functions: Callable[[], object]) -> None:
    """Time the functions interleaved, so that noise of the machine affects all of them; print quantiles."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 10):
        for name, function in functions.items():
            began = perf_counter()
            function()
            if turn >= 10:
                times[name].append((perf_counter() - began) * 1e6)
    for name, values in times.items():
        low, middle = np.quantile(values, [0.1, 0.5])
        print(f"  {name:24s} {low:8.1f} (10 %) {middle:8.1f} (median)")


def learning() -> None:
    """Forward and backward through both towers: 1024 rows by autograd, then the shards that a learner computes."""
    spec = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))
    policy = MLPPolicy(spec)
    move_parameters(policy, torch.zeros(size_of(policy)))
    gradient = FlatGradient(policy).vector
    plain = [nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n)) for n in (2, 1)]
    rows, d_params, d_value = torch.randn(1024, 4), torch.randn(1024, 2), torch.randn(1024)

    def run_plain() -> None:
        torch.autograd.backward((plain[0](rows), plain[1](rows).squeeze(1)), (d_params, d_value))

    def run_towers() -> None:
        gradient.zero_()
        torch.autograd.backward(policy(rows), (d_params, d_value))

    print("forward + backward, 1024 x 4, 64x64 tanh")
    compare(200, plain_sequential=run_plain, towers=run_towers)
    by_torch, by_numpy = TorchNet(policy, spec, learns=True), NumpyMLP(policy, learns=True, both=True)
    for count in (64, 256, 512, 1024):
        obs = {"obs": rows[:count].numpy()}
        slopes = np.asfortranarray(d_params[:count].numpy()), d_value[:count].numpy()

        def run(
            net: ArrayNet, obs: dict[str, np.ndarray] = obs, slopes: tuple[np.ndarray, np.ndarray] = slopes
        ) -> None:
            net(obs, learns=True)
            net.pullback(*slopes)

        print(f"the same in a learner, shard of {count} rows")
        compare(200, torch=partial(run, by_torch), numpy=partial(run, by_numpy))


def acting() -> None:
    """Act for one step of 32 envs, sampling included."""
    spec = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))
    policy, head, draw = MLPPolicy(spec), head_for(spec.action), np.random.default_rng(0)
    obs = {"obs": draw.standard_normal((32, 4)).astype(np.float32)}
    noise = head.draw_noise(draw, (32,))
    actor = policy.numpy_actor(8, 4)

    def run_torch() -> None:
        with torch.inference_mode():
            params, _ = policy(torch.from_numpy(obs["obs"]))
            head.choose(params.numpy(), noise)

    print("acting, 8 groups x 4 envs, 64x64 tanh")
    compare(
        2000,
        numpy_actor=lambda: actor(obs),
        numpy_actor_policy=lambda: actor.act(obs),
        numpy_actor_choose=lambda: head.choose(actor.act(obs), noise),
        torch=run_torch,
    )


def gae_by_steps(
    reward: Tensor, value: Tensor, after: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> Tensor:
    """GAE by its recursion over steps, in numpy."""
    delta = (reward + gamma * after * ~terminated - value).numpy()
    decay = (gamma * lam * ~ended).numpy()
    result, last = np.empty_like(delta), np.zeros(delta.shape[1], np.float32)
    for t in range(len(delta) - 1, -1, -1):
        last = result[t] = delta[t] + decay[t] * last
    return torch.from_numpy(result)


def advantages() -> None:
    """GAE over rollouts of several shapes."""
    for steps, envs in ((128, 32), (128, 8), (2048, 8)):
        reward, value, after = torch.randn(3, steps, envs)
        terminated = torch.rand(steps, envs) < 0.02
        inputs = (reward, value, after, terminated, terminated)
        print(f"gae, {steps} steps x {envs} envs")
        compare(
            100,
            doubling=partial(gae, *inputs, gamma=0.99, lam=0.95),
            by_steps=partial(gae_by_steps, *inputs, gamma=0.99, lam=0.95),
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    acting()
    learning()
    advantages()
