"""Action heads: how the policy's output parametrises a distribution over actions.

Each head is implemented twice on purpose. Acting uses numpy on a few rows, thousands of times
per second, with noise drawn in advance. Learning uses torch on large batches, differentiable.
Both take the same `params` and agree on `log_prob`.

    params [n, P] --choose(noise)--> action                  numpy, while collecting
    params [n, P] --log_prob(action)--> log_prob             numpy, at once or later for many rows
    params [N, P] --log_prob_entropy(action)--> ...          torch, while learning

In numpy each row is computed from that row alone, with the same operations for every n.
So results do not depend on which rows a worker holds.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from paceline.errors import ConfigError
from paceline.spec import ActionSpec

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

ILLEGAL = -1e8
"""Logit of an illegal action: far below any legal logit, but finite, so that the entropy stays finite too."""

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
_LOG_STD_MIN, _LOG_STD_MAX = np.float32(LOG_STD_MIN), np.float32(LOG_STD_MAX)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# Limits Gumbel noise to 23.1, so that no exponential in `log_prob` can overflow float32.
_TINY_EXPONENTIAL = np.float32(1e-10)
_TINY_UNIFORM = np.float32(2.0**-25)


def legal_only(params: Floats, mask: Mask | None) -> Floats:
    """Return logits or action values `[n, A]` in which illegal actions have the value ILLEGAL."""
    return params if mask is None else np.where(mask, params, np.float32(ILLEGAL))


def _part(mask: Mask | None, columns: slice) -> Mask | None:
    return None if mask is None else mask[:, columns]


class ActionHead(Protocol):
    """How to sample, score and greedily choose one kind of action. Only categorical actions have masks."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Draw the noise for `choose`, float32 `[*shape, noise_size]`."""

    def choose(self, params: Floats, noise: Floats, mask: Mask | None = None) -> NDArray[Any]:
        """Sample actions `[n, *act]` in stored form; illegal actions are never chosen."""

    def log_prob(self, params: Floats, action: NDArray[Any], mask: Mask | None = None) -> Floats:
        """Return log-probabilities `[n]` of actions that `choose` returned."""

    def mode(self, params: Floats, mask: Mask | None = None) -> NDArray[Any]:
        """Return the most probable actions `[n, *act]`."""

    def log_prob_entropy(self, params: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return log-probability `[N]` of stored actions and entropy `[N]`, differentiable in `params`."""


def head_for(action: ActionSpec) -> ActionHead:
    """Return the head for an action space."""
    match action.kind:
        case "categorical":
            return Categorical(action.nvec[0])
        case "multi_categorical":
            return MultiCategorical(action.nvec)
        case "bernoulli":
            return Bernoulli(action.shape)
        case "gaussian":
            return Gaussian(action.shape)
    raise ConfigError(f"action kind {action.kind!r}: has no action head. Use a space that EnvSpec.of supports.")


class Categorical:
    """One choice out of n. `params` are logits. The argmax of logits plus Gumbel noise is a sample."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._offsets = np.zeros(0, np.int64)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Gumbel noise `[*shape, n]`."""
        # A standard Gumbel is -log of a standard exponential. Drawing the exponential keeps the
        # tail that -log(-log(u)) loses where a float32 u rounds to one.
        noise = generator.standard_exponential((*shape, self.n), dtype=np.float32)
        np.maximum(noise, _TINY_EXPONENTIAL, out=noise)
        np.log(noise, out=noise)
        return np.negative(noise, out=noise)

    def choose(self, params: Floats, noise: Floats, mask: Mask | None = None) -> NDArray[np.int64]:
        """Actions `[n]`."""
        action: NDArray[np.int64] = (legal_only(params, mask) + noise).argmax(1)
        return action

    def log_prob(self, params: Floats, action: NDArray[Any], mask: Mask | None = None) -> Floats:
        """Log-probabilities `[n]`."""
        logits = legal_only(params, mask)
        rows = len(logits)
        if len(self._offsets) != rows:
            self._offsets = np.arange(0, rows * self.n, self.n)
        # log_prob = -log sum exp(logit - chosen). The chosen logit is a safe pivot because it won the argmax:
        # no other logit exceeds it by more than the (bounded) difference of their noise.
        scores = logits - logits.take(action + self._offsets)[:, None]
        np.exp(scores, out=scores)
        log_prob: Floats = np.log(np.add.reduce(scores, 1))
        return np.negative(log_prob, out=log_prob)

    def mode(self, params: Floats, mask: Mask | None = None) -> NDArray[np.int64]:
        """The legal action with the largest logit, `[n]`."""
        best: NDArray[np.int64] = legal_only(params, mask).argmax(1)
        return best

    def log_prob_entropy(self, params: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, `[N]` each."""
        logits = params if mask is None else params.masked_fill(~mask, ILLEGAL)
        log_p = functional.log_softmax(logits, 1)
        entropy = -(log_p.exp() * log_p).sum(1)
        return log_p.gather(1, action.unsqueeze(1)).squeeze(1), entropy


class MultiCategorical:
    """Several independent categorical choices. `params` are their logits, concatenated."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.nvec = nvec
        ends = np.cumsum(nvec).tolist()
        self._parts = [(slice(end - n, end), Categorical(n)) for n, end in zip(nvec, ends, strict=True)]

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Gumbel noise `[*shape, sum(nvec)]`."""
        return Categorical(sum(self.nvec)).draw_noise(generator, shape)

    def choose(self, params: Floats, noise: Floats, mask: Mask | None = None) -> NDArray[np.int64]:
        """Actions `[n, len(nvec)]`."""
        action = np.empty((len(params), len(self.nvec)), np.int64)
        for i, (part, head) in enumerate(self._parts):
            action[:, i] = head.choose(params[:, part], noise[:, part], _part(mask, part))
        return action

    def log_prob(self, params: Floats, action: NDArray[Any], mask: Mask | None = None) -> Floats:
        """Log-probabilities of all choices together, `[n]`."""
        total = np.zeros(len(params), np.float32)
        for i, (part, head) in enumerate(self._parts):
            total += head.log_prob(params[:, part], action[:, i], _part(mask, part))
        return total

    def mode(self, params: Floats, mask: Mask | None = None) -> NDArray[np.int64]:
        """The legal action with the largest logit of each choice, `[n, len(nvec)]`."""
        columns = [head.mode(params[:, p], _part(mask, p)) for p, head in self._parts]
        return np.stack(columns, 1)

    def log_prob_entropy(self, params: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of all choices together, `[N]` each."""
        pairs = [
            head.log_prob_entropy(params[:, part], action[:, i], None if mask is None else mask[:, part])
            for i, (part, head) in enumerate(self._parts)
        ]
        log_prob, entropy = (torch.stack(column).sum(0) for column in zip(*pairs, strict=True))
        return log_prob, entropy


class Bernoulli:
    """Independent bits. `params` are logits of a one; the sign of logit plus logistic noise is a sample."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Logistic noise `[*shape, bits]`."""
        uniform = generator.random((*shape, self.size), dtype=np.float32)
        np.maximum(uniform, _TINY_UNIFORM, out=uniform)
        return np.log(uniform) - np.log1p(-uniform)

    def choose(self, params: Floats, noise: Floats, mask: Mask | None = None) -> NDArray[np.int8]:
        """Bits `[n, *shape]`."""
        return (params + noise > 0).astype(np.int8).reshape(-1, *self.shape)

    def log_prob(self, params: Floats, action: NDArray[Any], mask: Mask | None = None) -> Floats:
        """Log-probability of all bits together, `[n]`."""
        # -log p(1) = softplus(-logit) and -log p(0) = softplus(logit).
        against = np.where(action.reshape(params.shape) != 0, -params, params)
        cost = np.maximum(against, 0) + np.log1p(np.exp(-np.abs(against)))
        log_prob: Floats = -np.add.reduce(cost, 1)
        return log_prob

    def mode(self, params: Floats, mask: Mask | None = None) -> NDArray[np.int8]:
        """One where the logit is positive, `[n, *shape]`."""
        return (params > 0).astype(np.int8).reshape(-1, *self.shape)

    def log_prob_entropy(self, params: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of all bits together, `[N]` each."""
        bits = action.reshape(params.shape).to(params.dtype)
        cost = functional.softplus(params)  # -log p(0); -log p(1) is this minus the logit
        log_prob = (bits * params - cost).sum(1)
        return log_prob, (cost - params.sigmoid() * params).sum(1)


class Gaussian:
    """Diagonal normal. `params` are means, then log standard deviations; actions are stored unclipped."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Standard normal noise `[*shape, size]`."""
        return generator.standard_normal((*shape, self.size), dtype=np.float32)

    def choose(self, params: Floats, noise: Floats, mask: Mask | None = None) -> Floats:
        """Actions `[n, *shape]`."""
        std: Floats = np.exp(self._log_std(params))
        return (params[:, : self.size] + std * noise).reshape(-1, *self.shape)

    def log_prob(self, params: Floats, action: NDArray[Any], mask: Mask | None = None) -> Floats:
        """Log-probabilities `[n]`."""
        log_std = self._log_std(params)
        # Computed from the rounded action, as the learner does, and not from the noise: with a very small
        # standard deviation the two differ, and the probability ratio of the first update would not be one.
        z = (action.reshape(-1, self.size) - params[:, : self.size]) * np.exp(-log_std)
        cost = np.float32(0.5) * z * z + log_std
        log_prob: Floats = -np.add.reduce(cost, 1) - np.float32(self.size * _HALF_LOG_2PI)
        return log_prob

    def _log_std(self, params: Floats) -> Floats:
        log_std: Floats = np.minimum(np.maximum(params[:, self.size :], _LOG_STD_MIN), _LOG_STD_MAX)
        return log_std

    def mode(self, params: Floats, mask: Mask | None = None) -> Floats:
        """The mean, `[n, *shape]`."""
        return params[:, : self.size].reshape(-1, *self.shape).copy()

    def log_prob_entropy(self, params: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, `[N]` each."""
        mean, log_std = params[:, : self.size], params[:, self.size :]
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        z = (action.reshape(mean.shape) - mean) * (-log_std).exp()
        log_prob = -(0.5 * z.square() + log_std).sum(1) - self.size * _HALF_LOG_2PI
        return log_prob, log_std.sum(1) + self.size * (0.5 + _HALF_LOG_2PI)
