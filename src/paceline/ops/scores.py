"""Log-probabilities and entropies with their gradient in closed form: what a loss needs of an action head.

    params --score--> log_prob, entropy              loss: d_log_prob, d_entropy
    params <------------- pullback(d_log_prob, d_entropy)

Building and walking an autograd graph over a dozen small tensors costs more than the arithmetic in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paceline.ops.distributions import ILLEGAL, LOG_STD_MAX, LOG_STD_MIN, ActionHead, Categorical, Gaussian


@dataclass(frozen=True, slots=True)
class Score:
    """How probable the actions taken are, and how that depends on the policy's output."""

    log_prob: Tensor  # [N]
    entropy: Tensor  # [N]
    pullback: Callable[[Tensor, Tensor], Tensor]
    """Gradients by log-probability and entropy, `[N]` each -> gradient by `params`, `[N, P]`."""


@torch.no_grad()
def score(head: ActionHead, params: Tensor, action: Tensor, mask: Tensor | None = None) -> Score:
    """Score stored actions under the distributions that `params` describe.

    Args:
        head: What `params` mean.
        params: `[N, P]`, without gradient.
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


def _categorical(params: Tensor, action: Tensor, mask: Tensor | None) -> Score:
    logits = params if mask is None else params.masked_fill(~mask, ILLEGAL)
    log_p = functional.log_softmax(logits, 1)
    p = log_p.exp()
    entropy = (p * log_p).sum(1).neg_()
    taken = action.unsqueeze(1)

    def pullback(d_log_prob: Tensor, d_entropy: Tensor) -> Tensor:
        # d log p(a) = 1[a] - p;  d H = -p (log p + H)
        weight = (log_p + entropy.unsqueeze(1)).mul_(d_entropy.unsqueeze(1)).add_(d_log_prob.unsqueeze(1))
        result = weight.mul_(p).neg_().scatter_add_(1, taken, d_log_prob.unsqueeze(1))
        return result if mask is None else result.masked_fill_(~mask, 0.0)

    return Score(log_p.gather(1, taken).squeeze(1), entropy, pullback)


def _gaussian(head: Gaussian, params: Tensor, action: Tensor) -> Score:
    log_prob, entropy = head.log_prob_entropy(params, action)
    mean, raw = params[:, : head.size], params[:, head.size :]
    log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
    free = (raw >= LOG_STD_MIN) & (raw <= LOG_STD_MAX)

    def pullback(d_log_prob: Tensor, d_entropy: Tensor) -> Tensor:
        inverse = (-log_std).exp()
        z = (action.reshape(mean.shape) - mean) * inverse
        d_mean = z * inverse * d_log_prob.unsqueeze(1)
        d_log_std = ((z.square() - 1.0) * d_log_prob.unsqueeze(1) + d_entropy.unsqueeze(1)) * free
        return torch.cat((d_mean, d_log_std), 1)

    return Score(log_prob, entropy, pullback)


def _by_autograd(head: ActionHead, params: Tensor, action: Tensor, mask: Tensor | None) -> Score:
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        log_prob, entropy = head.log_prob_entropy(leaf, action, mask)

    def pullback(d_log_prob: Tensor, d_entropy: Tensor) -> Tensor:
        (result,) = torch.autograd.grad((log_prob, entropy), leaf, (d_log_prob, d_entropy))
        return result

    return Score(log_prob.detach(), entropy.detach(), pullback)
