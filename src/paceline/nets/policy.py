"""Builds a policy from a name, an import path or a class, and checks that it can be trained."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from paceline.errors import ConfigError, nearest
from paceline.moved import current_module
from paceline.nets.cnn import ImpalaCNN, NatureCNN
from paceline.nets.extracted_mlp import ExtractedMLP
from paceline.nets.features import policy_input
from paceline.nets.mlp import Activation, MLPPolicy
from paceline.nets.uneven_mlp import UnevenMLP
from paceline.spec import EnvSpec

POLICIES = ("auto", "impala_cnn", "mlp", "nature_cnn")
"""Built-in names; `auto` is nature_cnn if an observation has an image, otherwise mlp."""

PolicySource = str | Callable[..., nn.Module]


class Policy(Protocol):
    """Interface of a policy: an `nn.Module` with float32 parameters that returns parameters and values.

    A class of your own is constructed as `cls(observation_space, action_space, param_size)`. `obs` is the batched
    observation, or a dict of its leaves (nested keys joined by `/`) for a Dict space. Images are raw uint8; the module
    scales them. `param_size` is the width that the action head needs: logits, or for Box actions means followed by log
    standard deviations.

    Optional methods: `numpy_actor(groups, group_size)` returns a faster forward for collecting (rules: nets/actor.py);
    `forward_pullback(obs)` is a forward and backward pass without autograd (example: nets/mlp.py).
    """

    def __call__(self, obs: Tensor | dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return distribution parameters `[N, param_size]` and state values `[N]`."""


def fast_method(policy: nn.Module, name: str) -> Callable[..., Any] | None:
    """An optional method that computes what `forward` does, only faster; None if it is missing or outdated.

    It is outdated in a subclass that overrides `forward` but inherits the fast method of the class that it extends.
    """
    for cls in type(policy).__mro__:
        if name in vars(cls):
            return cast("Callable[..., Any]", getattr(policy, name))
        if "forward" in vars(cls):
            return None
    return None


Pullback = Callable[[Tensor, Tensor], None]
"""Backward pass: takes the gradients by params `[N, P]` and value `[N]`, and adds to every parameter's `.grad`."""


def forward_pullback(policy: nn.Module, obs: Tensor | dict[str, Tensor]) -> tuple[Tensor, Tensor, Pullback]:
    """Run the forward pass; returns detached outputs and the backward pass.

    Uses the policy's own `forward_pullback` method if it has one (see `fast_method`), otherwise autograd.
    """
    own = fast_method(policy, "forward_pullback")
    if own is not None:
        result: tuple[Tensor, Tensor, Pullback] = own(obs)
        return result
    with torch.enable_grad():
        params, value = policy(obs)

    def pullback(d_params: Tensor, d_value: Tensor) -> None:
        torch.autograd.backward((params, value), (d_params, d_value))

    return params.detach(), value.detach(), pullback


def build_policy(
    source: PolicySource,
    spec: EnvSpec,
    *,
    hidden_sizes: Sequence[int] = (64, 64),
    value_hidden_sizes: Sequence[int] | None = None,
    activation: Activation = "tanh",
    features_extractor: PolicySource | None = None,
    seed: int = 0,
) -> nn.Module:
    """Construct and check a policy.

    Initial weights depend on `seed` alone; torch's global random generator keeps its state.

    Args:
        source: One of `POLICIES`, `"module:Class"`, or a class (see `Policy`).
        spec: Spec of the env.
        hidden_sizes: Hidden layers of mlp.
        value_hidden_sizes: Those of its value tower; None for the same.
        activation: Activation of mlp.
        features_extractor: Module in front of mlp: `"module:Class"`, or a class (see `ExtractedMLP`).
        seed: Seed of the initial weights.

    Raises:
        ConfigError: The policy cannot be constructed or trained.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that would also seed CUDA generators, which `fork_rng(devices=[])` does not restore.
        torch.default_generator.manual_seed(seed)
        module, name = _construct(source, spec, hidden_sizes, value_hidden_sizes, activation, features_extractor)
        _check_layers(module, name)
        _check_outputs(module, name, spec)
    return module


def _construct(
    source: PolicySource,
    spec: EnvSpec,
    hidden_sizes: Sequence[int],
    value_hidden_sizes: Sequence[int] | None,
    activation: Activation,
    extractor: PolicySource | None,
) -> tuple[nn.Module, str]:
    if extractor is not None:
        if source not in ("auto", "mlp"):
            raise ConfigError(f"features_extractor: is for policy='mlp' (got {source!r}). Leave one of the two out.")
        make = _imported(extractor, "features_extractor") if isinstance(extractor, str) else extractor
        name = extractor if isinstance(extractor, str) else extractor.__qualname__
        values = hidden_sizes if value_hidden_sizes is None else value_hidden_sizes
        return ExtractedMLP(make, name, spec, hidden_sizes, values, activation), name
    if source == "auto":
        source = "nature_cnn" if any(leaf.kind == "image" for leaf in spec.obs) else "mlp"
    if value_hidden_sizes is not None and source != "mlp":
        raise ConfigError(
            f"value_hidden_sizes={tuple(value_hidden_sizes)}: is for policy='mlp' (got {source!r}). Leave it out."
        )
    match source:
        case "mlp" if value_hidden_sizes is None or tuple(value_hidden_sizes) == tuple(hidden_sizes):
            return MLPPolicy(spec, hidden_sizes, activation), source
        case "mlp":
            return UnevenMLP(spec, hidden_sizes, value_hidden_sizes or (), activation), source
        case "nature_cnn":
            return NatureCNN(spec), source
        case "impala_cnn":
            return ImpalaCNN(spec), source
        case str() if ":" in source:
            cls, name = _imported(source), source
        case str():
            raise ConfigError(
                f"policy={source!r}: unknown name. {nearest(source, POLICIES)} For your own class write 'module:Class'."
            )
        case _:
            cls, name = source, getattr(source, "__qualname__", repr(source))
    try:
        module = cls(spec.observation_space, spec.action_space, spec.action.param_size)
    except ConfigError:
        raise
    except Exception as exc:
        raise ConfigError(
            f"policy {name!r}: {name}(observation_space, action_space, param_size={spec.action.param_size}) "
            f"raised {type(exc).__name__}: {exc}. Accept these three arguments."
        ) from exc
    if not isinstance(module, nn.Module):
        raise ConfigError(f"policy {name!r}: must construct a torch.nn.Module ({type(module).__name__}).")
    return module, name


def _imported(path: str, setting: str = "policy") -> Callable[..., Any]:
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(current_module(module_name))
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"{setting}={path!r}: no module {exc.name!r}. Run from its folder, install it, or set PYTHONPATH."
        ) from exc
    cls = getattr(module, attribute, None)
    if not callable(cls):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise ConfigError(f"{setting}={path!r}: {module_name!r} has no {attribute!r}. {nearest(attribute, classes)}")
    found: Callable[..., Any] = cls
    return found


def _check_layers(module: nn.Module, name: str) -> None:
    for path, layer in module.named_modules():
        if getattr(layer, "running_mean", None) is not None or isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ConfigError(
                f"policy {name!r}: layer {path!r} ({type(layer).__name__}) mixes the rows of a batch, so results "
                "would depend on the number of workers. Use LayerNorm or GroupNorm."
            )
        dropout = isinstance(layer, nn.modules.dropout._DropoutNd | nn.AlphaDropout)
        if dropout and layer.training and getattr(layer, "p", 0.0) > 0:
            raise ConfigError(
                f"policy {name!r}: layer {path!r} ({type(layer).__name__}, p={layer.p}) makes the policy random, so "
                "learning and collecting would compute different outputs. Remove it, or put it in eval mode."
            )


def _check_outputs(module: nn.Module, name: str, spec: EnvSpec) -> None:
    rows, size = 3, spec.action.param_size  # not 2 rows: a single tensor of two rows would unpack into two results
    # All zero, or the first category.
    zeros = {leaf.name: torch.from_numpy(np.full((rows, *leaf.shape), leaf.start, leaf.dtype)) for leaf in spec.obs}
    try:
        with torch.no_grad():
            result = module(policy_input(spec, zeros))
            params, value = result
            shapes = tuple(params.shape), tuple(value.shape)
    except Exception as exc:
        shown = {key: (str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)) for key, leaf in zeros.items()}
        raise ConfigError(
            f"policy {name!r}: forward raised {type(exc).__name__} on {shown}: {exc}. "
            f"It must return (params [N, {size}], value [N])."
        ) from exc
    if shapes != ((rows, size), (rows,)):
        raise ConfigError(
            f"policy {name!r}: must return params {(rows, size)} and value {(rows,)} for {rows} rows "
            f"({shapes[0]} and {shapes[1]})." + (" Add .squeeze(-1) to the value." if shapes[1] == (rows, 1) else "")
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRecipe:
    """How to build the network, the same in every process."""

    policy: str | type[nn.Module]
    hidden_sizes: tuple[int, ...]
    activation: Activation
    seed: int
    value_hidden_sizes: tuple[int, ...] | None = None
    features_extractor: str | type[nn.Module] | None = None

    def build(self, spec: EnvSpec) -> nn.Module:
        """Return a new network whose parameters depend only on the seed."""
        return build_policy(
            self.policy,
            spec,
            hidden_sizes=self.hidden_sizes,
            value_hidden_sizes=self.value_hidden_sizes,
            activation=self.activation,
            features_extractor=self.features_extractor,
            seed=self.seed,
        )
