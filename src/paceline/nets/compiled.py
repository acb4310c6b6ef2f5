"""`--compile`: the gradient of a policy through `torch.compile`.

    driver: can it be compiled? try it ──► compiled_rows ──► every worker compiles the same, from the cache

Fused kernels round differently, so all processes must agree on what runs compiled. Therefore the driver alone decides,
before workers start. There is one batch size, to which shorter batches are padded, because with dynamic sizes the
compiled code depends on the order in which sizes appear. A network is one graph, or is not compiled at all.
"""

from __future__ import annotations

import os
import shutil
import sys
import types
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from paceline.errors import LearnerError
from paceline.nets.features import policy_input
from paceline.nets.policy import Pullback, autograd_pullback, lowest_rows
from paceline.spec import EnvSpec

Obs = Tensor | dict[str, Tensor]


class CompiledForward:
    """`forward_pullback` of one policy, compiled for batches of up to `rows` rows.

    Compiles on construction, for ten seconds or more, or a few where an earlier process has compiled the same: a
    worker that did so at its first batch would be taken for hung. Adds zeros to gradients.

    Args:
        policy: Goes through autograd (`usable_rows` knows).
        spec: What it sees.
        rows: Size of the largest batch.
    """

    def __init__(self, policy: nn.Module, spec: EnvSpec, rows: int) -> None:
        self._rows = rows

        def forward(obs: Obs) -> tuple[Tensor, Tensor]:
            result: tuple[Tensor, Tensor] = policy(obs)
            return result

        # Compiled code is kept with the function's own code, eight pieces at most: a copy of it keeps one policy from
        # counting against another.
        own = types.FunctionType(forward.__code__.replace(), forward.__globals__, closure=forward.__closure__)
        # In this process, because a pool of compiler processes would stay behind.
        self._forward = torch.compile(own, fullgraph=True, dynamic=False, options={"compile_threads": 1})
        device = next(policy.parameters()).device
        obs = {name: leaf.to(device) for name, leaf in lowest_rows(spec, rows).items()}
        params, value, pullback = self(policy_input(spec, obs))
        pullback(torch.zeros_like(params), torch.zeros_like(value))

    def __call__(self, obs: Obs) -> tuple[Tensor, Tensor, Pullback]:
        """Outputs without a graph, and the way back."""
        count = len(obs if isinstance(obs, Tensor) else next(iter(obs.values())))
        missing = self._rows - count
        if missing < 0:
            raise LearnerError(f"compile: supports at most {self._rows} rows (got {count}). Train without --compile.")
        if not missing:
            return autograd_pullback(self._forward, obs)
        padded = (
            _repeat_last(obs, missing)
            if isinstance(obs, Tensor)
            else {name: _repeat_last(leaf, missing) for name, leaf in obs.items()}
        )
        params, value, back = autograd_pullback(self._forward, padded)

        def pullback(d_params: Tensor, d_value: Tensor) -> None:
            back(
                nn.functional.pad(d_params, (0, 0, 0, missing)),  # what is not there has no gradient
                nn.functional.pad(d_value, (0, missing)),
            )

        return params[:count], value[:count], pullback


def usable_rows(policy: nn.Module, rows: int, attempt: Callable[[int], object]) -> int | None:
    """The size to compile for: `rows`, or none where this network or this machine cannot, which is warned of.

    Args:
        policy: The network.
        rows: Size that is asked for.
        attempt: Compiles for a size, or raises.
    """
    why = _hopeless(policy)
    if why is None:
        try:
            attempt(rows)
            return rows
        except Exception as error:  # compilers fail in many ways, and none of them is the end of a run
            first_line = next(iter(str(error).strip().splitlines()), "")
            why = f"{type(error).__name__}: {first_line[:300]}"
    warnings.warn(f"compile: {why}. Training continues without it.", RuntimeWarning, stacklevel=3)
    return None


def _hopeless(policy: nn.Module) -> str | None:
    """Return why compiling cannot work, or None if it is worth trying."""
    if hasattr(policy, "forward_pullback"):
        return f"{type(policy).__name__} has a hand-written gradient, so there is nothing to compile"
    if all(parameter.device.type == "cpu" for parameter in policy.parameters()):
        # The one that torch itself looks for.
        compiler = os.environ.get("CXX") or {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
        if shutil.which(compiler) is None:
            return f"no C++ compiler found (looked for {compiler!r}; CXX may name another)"
    return None


def _repeat_last(rows: Tensor, count: int) -> Tensor:
    """`rows` and `count` more: copies of one that a network can read, which zeros need not be."""
    return torch.cat((rows, rows[-1:].expand(count, *rows.shape[1:])))
