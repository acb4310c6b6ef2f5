"""The gradient of PPO's loss: by definition, in shards, and the same bits on any worker."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algos.learners import SPEC, B, Make, T, batch, make, vector
from torch import nn

from paceline.algos.ppo_gradient import PPOGradient
from paceline.batch import Trajectory
from paceline.config.ppo_settings import PPOConfig
from paceline.memory.shards import SAMPLE
from paceline.nets.flat import bind, move_parameters, size_of
from paceline.nets.policy import build_policy
from paceline.ops.distributions import head_for
from paceline.ops.surrogate import TERMS
from paceline.spec import PLAIN

__all__ = ["make"]  # a fixture


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_gradient_bits_do_not_depend_on_which_worker_computes_a_shard(workers: int, make: Make) -> None:
    settings: dict[str, Any] = {"grad_shards": 3, "obs_norm": True}
    alone, shared = make(**settings), make(workers=workers, **settings)
    for version in range(3):
        assert alone.update(batch(version=version), 0.0) == shared.update(batch(version=version), 0.0)
    assert vector(alone) == vector(shared)


def test_shards_add_up_to_the_whole_minibatch(make: Make) -> None:
    for shards in (2, 3, 5, 12):
        whole, cut = make(grad_shards=1, n_epochs=1, batch_size=24), make(grad_shards=shards, n_epochs=1, batch_size=24)
        expected, got = whole.update(batch(), 0.0), cut.update(batch(), 0.0)
        torch.testing.assert_close(cut._shards.grads.sum(0), whole._shards.grads[0], rtol=1e-4, atol=1e-6)
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_minibatch_may_have_fewer_rows_than_shards(make: Make) -> None:
    learner = make(grad_shards=8, batch_size=4)
    assert np.isfinite(learner.update(batch(), 0.0)["loss"])
    assert learner.n_updates == 12


CLIP = 0.2


def loss_by_definition(
    policy: nn.Module, b: Trajectory, advantage: torch.Tensor, returns: torch.Tensor, config: PPOConfig
) -> torch.Tensor:
    """PPO's loss of a whole batch, as the paper writes it, for autograd."""
    params, value = policy(b.obs[PLAIN][:-1].flatten(0, 1))
    chosen = torch.distributions.Categorical(logits=params)
    ratio = (chosen.log_prob(b.action.flatten()) - b.log_prob.flatten()).exp()
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = (value - returns).square().mean()
    loss: torch.Tensor = -surrogate + config.vf_coef * value_loss - config.ent_coef * chosen.entropy().mean()
    return loss


@pytest.mark.parametrize("policy", ["mlp", "torch"])
def test_the_gradient_is_that_of_the_loss_by_autograd(policy: str) -> None:
    config = PPOConfig(n_steps=T, ent_coef=0.02, vf_coef=0.7, learner_threads=1 if policy == "mlp" else 2)
    b = batch()
    # Probabilities of the old policy far from the new one: some ratios are clipped.
    b = dataclasses.replace(b, log_prob=b.log_prob + torch.linspace(-0.6, 0.6, T * B).reshape(T, B))
    generator = torch.Generator().manual_seed(0)
    advantage, returns = torch.randn(T * B, generator=generator), torch.randn(T * B, generator=generator)
    net = build_policy("mlp", SPEC, hidden_sizes=(16, 16), activation="tanh", seed=3)
    vector = torch.empty(size_of(net))
    move_parameters(net, vector)
    vector.normal_(std=0.5, generator=generator)  # far from uniform probabilities, whose entropy has no gradient
    gradient = PPOGradient(net, head_for(SPEC.action), SPEC, config, None)
    samples = torch.stack([b.log_prob.flatten(), advantage, returns, b.value[:-1].flatten()], 1).numpy()
    terms = gradient(
        {PLAIN: b.obs[PLAIN][:-1].flatten(0, 1).numpy()}, b.action.flatten().numpy(), None, samples,
        mean=0.25, inv_std=2.0, total=T * B, clip_range=CLIP,
    )  # fmt: skip
    found = gradient.vector.clone()
    assert SAMPLE == ("log_prob", "advantage", "returns", "value")
    expected = torch.zeros_like(vector)
    bind(net, vector, frozen=False)
    for parameter in net.parameters():
        parameter.requires_grad_(True)
        parameter.grad = None
    loss = loss_by_definition(net, b, (advantage - 0.25) * 2.0, returns, config)
    loss.backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        at = (parameter.data_ptr() - vector.data_ptr()) // 4
        expected[at : at + parameter.numel()] = parameter.grad.flatten()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    named = dict(zip(TERMS, terms, strict=True))
    total = (
        named["policy_gradient_loss"] + config.ent_coef * named["entropy_loss"] + config.vf_coef * named["value_loss"]
    )
    assert total == pytest.approx(loss.item(), rel=1e-4)
    assert 0 < named["clip_fraction"] < 1


def test_an_empty_shard_leaves_zeros_and_no_numbers_of_the_minibatch_before(make: Make) -> None:
    learner = make(grad_shards=8, batch_size=4)
    learner._shards.grads.fill_(7.0)
    learner._shards.terms.fill_(7.0)
    learner.update(batch(), 0.0)
    rows = [learner._shards.bounds(*learner._shards.minibatch[:2])[shard] for shard in range(8)]
    empty = [shard for shard, (start, stop) in enumerate(rows) if start == stop]
    assert len(empty) == 4
    assert not learner._shards.grads[empty].any()
    assert not learner._shards.terms[empty].any()
