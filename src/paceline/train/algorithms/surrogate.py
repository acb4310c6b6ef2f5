"""What PPO, IMPALA, APPO and A3C share: the gradient of the clipped surrogate loss, and the learner that applies it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from paceline.algos.action_std import action_std
from paceline.algos.device_gradients import DeviceGradients
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import Gradients, PPOGradient, ShardedGradient, ShardedUpdate
from paceline.algos.targets import Targets
from paceline.config.algorithm_settings import SurrogateSettings
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena, ArraysByName
from paceline.memory.slots import Slots
from paceline.nets.flat import bind
from paceline.ops.adam import FlatAdam
from paceline.ops.distributions import head_for
from paceline.runtime.protocol import J
from paceline.spec import EnvSpec
from paceline.train.plan import DriverParts
from paceline.train.worker_recipe import WorkerRecipe


def gradient_of(recipe: WorkerRecipe, settings: SurrogateSettings, arena: Arena, slots: Slots) -> ShardedGradient:
    """Return what computes shards of a gradient from rows of `slots`, at the published weights, into shared memory."""
    return ShardedGradient(surrogate_gradient(recipe, settings, arena.__getitem__), slots, Shards(arena))


def surrogate_gradient(recipe: WorkerRecipe, settings: SurrogateSettings, arrays: ArraysByName) -> PPOGradient:
    """Build a new network with the weights and observation statistics in `arrays`, and return its gradient function."""
    spec = recipe.shape.spec
    policy = recipe.policy.build(spec)
    bind(policy, torch.from_numpy(arrays("weights")), frozen=False)
    normaliser = recipe.obs_normaliser(arrays, attach=True)
    return PPOGradient(policy, head_for(spec.action), spec, settings, normaliser)


def gradients_for(
    parts: DriverParts[J], recipe: WorkerRecipe, settings: SurrogateSettings, slots: Slots, work: Callable[[int], None]
) -> Gradients:
    """Return what computes the gradient of a minibatch: in shards on the CPU, or as a whole on the learner's device.

    Args:
        parts: The objects that the driver has built.
        recipe: Recipe of the network and its inputs.
        settings: Hyper-parameters.
        slots: The batch.
        work: Computes a number of shards, on the workers or in this process.
    """
    shards, device = Shards(parts.arena), parts.vector.device
    if device.type == "cpu":
        return ShardedUpdate(work, shards, parts.weights.showing(parts.vector))
    spec = recipe.shape.spec
    gradient = PPOGradient(parts.policy, head_for(spec.action), spec, settings, parts.obs_norm)
    return DeviceGradients(gradient, slots, shards, device)


def surrogate_learner(
    parts: DriverParts[J], spec: EnvSpec, settings: SurrogateSettings, gradients: Gradients, targets: Targets
) -> PPOLearner:
    """Build the learner in the driver."""
    return PPOLearner(
        parts.vector,
        parts.weights,
        gradients,
        Shards(parts.arena),
        targets,
        FlatAdam(parts.vector),
        settings,
        seed=parts.config.run.seed,
        clock=parts.clock,
        obs_norm=parts.obs_norm,
        reward_norm=parts.reward_norm,
        action_std=action_std(parts.mirror, spec, parts.obs_norm),
    )
