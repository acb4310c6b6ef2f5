"""Learning from one minibatch: on one thread, on two torch threads, and on two workers that share the gradient.

    make bench-grad

All settings take turns in one run. What is timed is `learner.update` on a batch that was collected once, so
advantages, shuffling and the optimiser's step are part of it; the learning rate is too small to move a weight, so
every update does the same work. Ratios are against one thread that computes minibatches whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import results
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.config.train_config import TrainConfig
from paceline.insight.windows import iterate
from paceline.train.build import build

WORKERS = 2
SHARDS = (1, 2, 4, 8, 16)


class Frames(gym.Env[NDArray[np.uint8], np.int64]):
    """Shows noise the size of four stacked Atari frames, for nothing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = spaces.Discrete(4)
        self._pool = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._elapsed = 0
        return self._pool[0], {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """The next frame."""
        self._elapsed += 1
        return self._pool[self._elapsed % 8], float(action == 0), self._elapsed >= 100, False, {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A network and its minibatch, as the target names them."""

    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    repeats: int
    """Updates of a turn, so that a turn is long enough to time."""
    target: float | None = None
    """Speed of two workers over one thread, where it is promised."""

    def config(self, **settings: Any) -> TrainConfig:
        """With these settings changed."""
        common = {"num_workers": 0, "learning_rate": 1e-12, "quiet": True}
        return TrainConfig.from_flat(**{**common, **self.settings, **settings})


CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 32, "n_steps": 128}
NETWORKS = {
    "cnn": Network(
        title="NatureCNN, 84x84x4, minibatch 256",
        settings={"env": Frames, "n_envs": 8, "n_steps": 64, "batch_size": 256, "n_epochs": 1},
        repeats=1,
        target=1.7,
    ),
    "mlp": Network(
        title="MLP 64x64, minibatch 1024",
        settings={**CARTPOLE, "batch_size": 1024, "n_epochs": 4},
        repeats=12,
        target=1.0,
    ),
    "small": Network(
        title="MLP 64x64, minibatch 256", settings={**CARTPOLE, "batch_size": 256, "n_epochs": 4}, repeats=6
    ),
    "middle": Network(
        title="MLP 256x256, minibatch 128",
        settings={**CARTPOLE, "batch_size": 128, "n_epochs": 1, "hidden_sizes": (256, 256)},
        repeats=4,
    ),
    "wide": Network(
        title="MLP 512x512, minibatch 1024",
        settings={**CARTPOLE, "batch_size": 1024, "n_epochs": 1, "hidden_sizes": (512, 512)},
        repeats=2,
    ),
}


class Updates:
    """Milliseconds that a minibatch takes, again and again from the same batch.

    Args:
        network: What learns.
        settings: Changes to its config.
        stack: Closes the training.
    """

    def __init__(self, network: Network, settings: Mapping[str, Any], stack: ExitStack) -> None:
        config = network.config(**settings)
        training = build(config)
        stack.callback(training.close)
        training.rollouts.reset()
        iterate(training)  # loads kernels, touches every page
        self._learner, self._repeats = training.learner, network.repeats
        self._batch = training.rollouts.next(training.learner.version)
        size = config.training.batch_size or config.batch_steps
        self._minibatches = network.repeats * config.training.n_epochs * config.batch_steps // size

    def __call__(self) -> float:
        """One turn."""
        began = perf_counter()
        for _ in range(self._repeats):
            self._learner.update(self._batch, 0.0)
        return (perf_counter() - began) * 1e3 / self._minibatches


@contextmanager
def contestants(network: Network, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Updates]]:
    """One training for each of the settings, all alive until the end."""
    with ExitStack() as stack:
        yield {name: Updates(network, settings, stack) for name, settings in wanted.items()}


def settings_of(shards: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """What is compared, by the name it has in the results."""
    return {
        "one thread": {"grad_shards": 1},
        "two torch threads": {"grad_shards": 1, "learner_threads": 2},
        **{f"sequential, {n} shards": {"grad_shards": n} for n in shards if n > 1},
        **{f"{WORKERS} workers, {n} shards": {"grad_shards": n, "num_workers": WORKERS} for n in shards},
    }


def default_shards(network: Network) -> int:
    """What a user gets who sets nothing."""
    return network.config().grad_shards(image=network.settings["env"] is Frames)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=9)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    args = parser.parse_args()
    before = results.Calm.now()
    found: dict[str, dict[str, list[float]]] = {}
    for name in args.networks:
        shards = (1, default_shards(NETWORKS[name])) if args.quick else SHARDS
        with contestants(NETWORKS[name], settings_of(shards)) as updates:
            found[name] = results.in_turns(updates, 2 if args.quick else args.rounds)
    report(found, results.conditions(before), keep=not args.quick)


def report(found: dict[str, dict[str, list[float]]], machine: dict[str, Any], *, keep: bool) -> None:
    """Sum up and publish."""
    parts, summary, speedups = [], [], {}
    for name, times in found.items():
        network, one = NETWORKS[name], times["one thread"]
        default = f"{WORKERS} workers, {default_shards(network)} shards"
        speeds = {what: results.ratio(one, milliseconds) for what, milliseconds in times.items()}
        rows = [
            [
                what.replace(", 1 shards", ", whole minibatches") + (" (default)" if what == default else ""),
                "{:.2f} ± {:.2f}".format(*results.median_spread(times[what])),
                results.shown(*speed),
            ]
            for what, speed in speeds.items()
        ]
        parts.append(f"**{network.title}**\n\n" + results.table(["", "ms per minibatch", "times one thread"], rows))
        best = max((what for what in speeds if what.startswith(f"{WORKERS} workers")), key=lambda what: speeds[what][0])
        speedups[name] = speeds[default][0]
        met = "" if network.target is None else f" ({'met' if speedups[name] >= network.target else 'missed'})"
        summary.append(
            [
                network.title,
                str(default_shards(network)),
                results.shown(*speeds[default]),
                "-" if network.target is None else f"{network.target:g}{met}",
                f"{best.split()[2]}: {results.shown(*speeds[best])}",
                results.shown(*speeds["two torch threads"]),
            ]
        )
    columns = ["network", "default shards", f"{WORKERS} workers", "target", "best shards", "2 torch threads, 1 process"]
    rounds = len(next(iter(next(iter(found.values())).values())))
    body = (
        "Learning, in times the speed of one thread that computes minibatches whole:\n\n"
        + "\n\n".join([results.table(columns, summary), *parts])
        + f"\n\nMedians of {rounds} turns ± half the range between the quartiles."
    )
    result = {"ms_per_minibatch": found, "speedup": speedups}
    results.publish("grad", "Learning on the workers", body, result, machine, keep=keep)


if __name__ == "__main__":
    main()
