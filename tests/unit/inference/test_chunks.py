"""The policy on a device, over a whole chunk at once."""

from __future__ import annotations

import numpy as np
import torch

from paceline.envs.make import EnvRecipe
from paceline.inference.chunks import DeviceActor
from paceline.nets.flat import move_parameters, size_of
from paceline.nets.policy import PolicyRecipe


def test_device_inference_batches_a_whole_chunk_in_any_request_order() -> None:
    """The logic of devices, on the CPU: one forward of a fixed batch, whichever lanes are in it."""
    spec = EnvRecipe(source="CartPole-v1").probe()
    policy, copy = (
        PolicyRecipe(policy="mlp", hidden_sizes=(8,), activation="tanh", seed=seed).build(spec) for seed in (0, 1)
    )
    weights = np.zeros(size_of(policy), np.float32)
    move_parameters(policy, torch.from_numpy(weights))
    actor = DeviceActor(copy, spec, weights, torch.device("cpu"), None, 6)
    obs = {"obs": np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)}
    params, value = (array.copy() for array in actor(obs))
    with torch.inference_mode():
        expected = policy(torch.from_numpy(obs["obs"]))
    assert np.array_equal(params, expected[0].numpy())
    obs["obs"][3:] = 0.0
    assert np.array_equal(actor(obs)[0][:3], params[:3])
    weights[:] = 0.0
    assert np.array_equal(actor(obs)[1][:3], value[:3])
    actor.renew()
    assert not np.array_equal(actor(obs)[1][:3], value[:3])
