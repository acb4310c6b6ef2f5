"""Log-probabilities and entropies with closed-form gradients: what a policy-gradient loss needs of an action head.

    params --score--> log_prob, entropy              loss: d_log_prob, d_entropy
    params <------------- pullback(d_log_prob, d_entropy)

In numpy, because a network outputs only a few numbers per row: an autograd graph over a dozen such tensors costs more
than the arithmetic in it, and torch's calls cost several times as much as numpy's (make bench-kernels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.ops.distributions import LOG_STD_MAX, LOG_STD_MIN, ActionHead, Categorical, Gaussian, legal_only

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Score:
    """Log-probability and entropy of stored actions, with the gradient by the policy's output."""

    log_prob: Floats  # [N]
    entropy: Floats  # [N]
    pullback: Callable[[Floats, float], Floats]
    """Gradients by log-probability `[N]` and by entropy (one number for all rows) -> gradient by `params` `[N, P]`."""


def score(head: ActionHead, params: Floats, action: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Score:
    """Score stored actions under the distributions that `params` describe.

    Args:
        head: The action head that interprets `params`.
        params: `[N, P]` outputs of the policy.
        action: `[N, *act]` in stored form.
        mask: `[N, M]` legal actions.
    """
    match head:
        case Categorical():
            return _categorical(params, action, mask)
        case Gaussian():
            return _gaussian(head, params, action)
        case _:
            return _by_autograd(head, params, action, mask)


def _categorical(params: Floats, action: NDArray[Any], mask: NDArray[np.bool_] | None) -> Score:
    # As [A, N], the layout in which the network returns them: each operation then runs over long contiguous rows.
    logits = np.ascontiguousarray(legal_only(params, mask).T)
    log_p = logits - np.maximum.reduce(logits, 0)
    p = np.exp(log_p)
    total = np.add.reduce(p, 0)
    np.divide(p, total, out=p)
    np.subtract(log_p, np.log(total, out=total), out=log_p)
    entropy = -np.add.reduce(p * log_p, 0)
    chosen = action * len(action) + np.arange(len(action))  # flat index of the chosen action in [A, N]

    def pullback(d_log_prob: Floats, d_entropy: float) -> Floats:
        # d log p(a) = 1[a] - p;  d H = -p (log p + H)
        result: Floats = p * -d_log_prob
        result.reshape(-1)[chosen] += d_log_prob
        if d_entropy:
            result -= np.float32(d_entropy) * p * (log_p + entropy)
        if mask is not None:
            result[~mask.T] = 0.0
        return result.T

    return Score(log_p.take(chosen), entropy, pullback)


def _gaussian(head: Gaussian, params: Floats, action: NDArray[Any]) -> Score:
    mean, raw = params[:, : head.size], params[:, head.size :]
    log_std = np.clip(raw, np.float32(LOG_STD_MIN), np.float32(LOG_STD_MAX))
    inverse = np.exp(-log_std)
    z = (action.reshape(mean.shape) - mean) * inverse
    constant = np.float32(head.size * 0.5 * np.log(2.0 * np.pi))
    log_prob = -(np.float32(0.5) * z * z + log_std).sum(1) - constant
    entropy = log_std.sum(1) + np.float32(0.5 * head.size) + constant

    def pullback(d_log_prob: Floats, d_entropy: float) -> Floats:
        by_row = d_log_prob[:, None]
        d_log_std = (z * z - np.float32(1.0)) * by_row + np.float32(d_entropy)
        d_log_std[(raw < LOG_STD_MIN) | (raw > LOG_STD_MAX)] = 0.0
        return np.concatenate((z * inverse * by_row, d_log_std), 1)

    return Score(log_prob, entropy, pullback)


def _by_autograd(head: ActionHead, params: Floats, action: NDArray[Any], mask: NDArray[np.bool_] | None) -> Score:
    leaf = torch.from_numpy(params).requires_grad_()
    tensors = torch.from_numpy(action), None if mask is None else torch.from_numpy(mask)
    with torch.enable_grad():
        log_prob, entropy = head.log_prob_entropy(leaf, *tensors)

    def pullback(d_log_prob: Floats, d_entropy: float) -> Floats:
        outer = torch.from_numpy(d_log_prob), torch.full_like(entropy, d_entropy)
        (result,) = torch.autograd.grad((log_prob, entropy), leaf, outer)
        pulled: Floats = result.numpy()
        return pulled

    return Score(log_prob.detach().numpy(), entropy.detach().numpy(), pullback)
