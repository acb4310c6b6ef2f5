"""PPO learners on hand-made batches, with everything around them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.algos.device_gradients import DeviceGradients
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import Gradients, PPOGradient, ShardedGradient, ShardedUpdate
from paceline.algos.targets import GAETargets
from paceline.batch import Finals, Trajectory
from paceline.config.ppo_settings import PPOConfig
from paceline.measure.clock import Clock
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.weights import Weights
from paceline.nets.flat import bind, move_parameters, size_of
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.nets.policy import build_policy
from paceline.ops.adam import FlatAdam
from paceline.ops.distributions import head_for
from paceline.spec import PLAIN, EnvSpec

T, B, D = 6, 4, 3
SPEC = EnvSpec.of(spaces.Box(-np.inf, np.inf, (D,), np.float32), spaces.Discrete(2))
SHAPE = SlotShape(SPEC, T, B, 1)


class Rig(PPOLearner):
    """A learner with its memory, whose `update` takes batches that a test has made."""

    arena: Arena
    policy: nn.Module
    pieces: list[list[int]]
    """The rows of every minibatch so far."""
    norms: list[float]
    """Gradient norm of every minibatch so far."""

    def update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        self.arena[f"obs/{PLAIN}"][...] = batch.obs[PLAIN].numpy()
        self.arena["action"][...] = batch.action.numpy()
        return super().update(batch, progress)


Make = Callable[..., Rig]


@pytest.fixture
def make() -> Iterator[Make]:
    arenas = []

    def learner(
        *,
        obs_norm: bool = False,
        reward_norm: bool = False,
        seed: int = 1,
        workers: int = 1,
        on_device: bool = False,
        **settings: Any,
    ) -> Rig:
        config = PPOConfig(**{"n_steps": T, "batch_size": 12, "n_epochs": 2, "grad_shards": 2, **settings})
        policy = build_policy("mlp", SPEC, hidden_sizes=(16, 16), activation="tanh", seed=seed)
        size = size_of(policy)
        shards_of_batch = Shards.fields(T * B, config.grad_shards or 1, size)
        arena = Arena.create([*SHAPE.fields(), *shards_of_batch, *Weights.fields(size)])
        arenas.append(arena)
        weights, shards = Weights(arena), Shards(arena)
        move_parameters(policy, weights.vector)
        normaliser = ObsNormaliser(SPEC) if obs_norm else None
        parts = []
        for _ in range(workers):
            copy_of_policy = build_policy("mlp", SPEC, hidden_sizes=(16, 16), activation="tanh", seed=seed)
            bind(copy_of_policy, weights.vector, frozen=False)
            gradient = PPOGradient(copy_of_policy, head_for(SPEC.action), SPEC, config, normaliser)
            parts.append(ShardedGradient(gradient, Slots(arena, SHAPE), shards))

        def work(count: int) -> None:
            assert count == config.grad_shards
            start, stop = shards.minibatch[:2]
            rig.pieces.append(shards.order[start:stop].tolist())
            for shard in reversed(range(count)):  # in any order, by any worker
                parts[(shard + 1) % workers](shard)
            rig.norms.append(float(shards.grads.sum(0).norm()))

        gradients: Gradients = ShardedUpdate(work, shards)
        if on_device:  # what a GPU does, on the CPU
            whole = PPOGradient(policy, head_for(SPEC.action), SPEC, config, normaliser)
            gradients = DeviceGradients(whole, Slots(arena, SHAPE), shards, torch.device("cpu"))
        rig = Rig(
            weights.vector,
            weights,
            gradients,
            shards,
            GAETargets(config.gamma, config.gae_lambda),
            FlatAdam(weights.vector),
            config,
            seed=seed,
            clock=Clock(),
            obs_norm=normaliser,
            reward_norm=RewardNormaliser(B, gamma=0.99) if reward_norm else None,
        )
        rig.arena, rig.policy, rig.pieces, rig.norms = arena, policy, [], []
        return rig

    yield learner
    for arena in arenas:
        arena.close()


def batch(seed: int = 0, **replaced: Any) -> Trajectory:
    """Random steps; episodes of env 1 terminate in row 2, those of env 2 are truncated in rows 1 and 4."""
    rng = np.random.default_rng(seed)

    def floats(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    terminated, truncated = torch.zeros(T, B, dtype=torch.bool), torch.zeros(T, B, dtype=torch.bool)
    terminated[2, 1] = truncated[1, 2] = truncated[4, 2] = True
    fields: dict[str, Any] = {
        "obs": {PLAIN: floats(T + 1, B, D)},
        "mask": None,
        "action": torch.from_numpy(rng.integers(0, 2, (T, B))),
        "reward": floats(T, B),
        "terminated": terminated,
        "truncated": truncated,
        "valid": torch.ones(T, B, dtype=torch.bool),
        "log_prob": torch.full((T, B), float(np.log(0.5))),
        "value": floats(T + 1, B),
        "finals": Finals(
            t=torch.tensor([1, 4]), env=torch.tensor([2, 2]), obs={PLAIN: floats(2, D)}, value=torch.tensor([7.0, -8.0])
        ),
        "version": 0,
    }
    return Trajectory(**{**fields, **replaced})


def vector(learner: PPOLearner) -> bytes:
    return learner._weights.vector.numpy().tobytes()
