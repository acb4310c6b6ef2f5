"""`build_policy`: names, import paths and classes, reproducible weights, and errors for unsupported modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.nets.actor import actor_for
from paceline.nets.cnn import ImpalaCNN, NatureCNN
from paceline.nets.mlp import MLPPolicy
from paceline.nets.policy import build_policy, fast_method, forward_pullback
from paceline.spec import EnvSpec

VECTOR = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))
PIXELS = EnvSpec.of(spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Discrete(3))


class Own(nn.Module):
    """A user's module."""

    extra: nn.Module = nn.Identity()

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete, param_size: int) -> None:
        super().__init__()
        assert param_size == action_space.n
        self.body = nn.Sequential(nn.Linear(observation_space.shape[0], 8), self.extra)
        self.policy, self.value = nn.Linear(8, param_size), nn.Linear(8, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def variant(**members: Any) -> type[Own]:
    return type("Variant", (Own,), members)


@pytest.mark.parametrize(
    ("name", "spec", "cls"),
    [
        ("auto", VECTOR, MLPPolicy),
        ("auto", PIXELS, NatureCNN),
        ("mlp", VECTOR, MLPPolicy),
        ("nature_cnn", PIXELS, NatureCNN),
        ("impala_cnn", PIXELS, ImpalaCNN),
    ],
)
def test_names(name: str, spec: EnvSpec, cls: type[nn.Module]) -> None:
    assert type(build_policy(name, spec)) is cls


def test_classes_and_import_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(build_policy(Own, VECTOR), Own)
    (tmp_path / "own_policy_module.py").write_text(
        "from torch import nn\n"
        "class Tiny(nn.Module):\n"
        "    def __init__(self, obs, act, size):\n"
        "        super().__init__(); self.layer = nn.Linear(4, size + 1)\n"
        "    def forward(self, obs):\n"
        "        out = self.layer(obs); return out[:, :-1], out[:, -1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(build_policy("own_policy_module:Tiny", VECTOR)).__name__ == "Tiny"
    with pytest.raises(ConfigError, match=r"has no 'Tyny'\. Did you mean 'Tiny'"):
        build_policy("own_policy_module:Tyny", VECTOR)
    with pytest.raises(ConfigError, match="no module 'no_such_module_here'"):
        build_policy("no_such_module_here:Tiny", VECTOR)


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'nature_cnn'"):
        build_policy("natur_cnn", PIXELS)


@pytest.mark.parametrize(("source", "spec"), [("mlp", VECTOR), ("nature_cnn", PIXELS), (Own, VECTOR)])
def test_weights_depend_on_the_seed_alone(source: Any, spec: EnvSpec) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_policy(source, spec, seed=7).state_dict()
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator must not move"
    torch.manual_seed(2)
    again = build_policy(source, spec, seed=7).state_dict()
    other = build_policy(source, spec, seed=8).state_dict()
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)


def test_settings_reach_the_mlp() -> None:
    policy = build_policy("mlp", VECTOR, hidden_sizes=(5, 6), activation="relu")
    assert isinstance(policy, MLPPolicy)
    assert policy.activation == "relu"
    assert [tuple(b.shape) for b in policy.biases] == [(2, 5), (2, 6)]


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(8), nn.SyncBatchNorm(8), nn.InstanceNorm1d(8, track_running_stats=True)]
)
def test_layers_that_mix_rows_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ConfigError, match=r"'body.1'.*LayerNorm"):
        build_policy(variant(extra=layer), VECTOR)


def test_dropout_raises_unless_it_is_inactive() -> None:
    with pytest.raises(ConfigError, match=r"'body.1' \(Dropout, p=0.5\)"):
        build_policy(variant(extra=nn.Dropout(0.5)), VECTOR)
    build_policy(variant(extra=nn.Dropout(0.0)), VECTOR)
    build_policy(variant(extra=nn.Dropout(0.5).eval()), VECTOR)
    build_policy(variant(extra=nn.LayerNorm(8)), VECTOR)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, obs: (self.policy(self.body(obs)), self.value(self.body(obs))), r"\(3, 1\).*squeeze"),
        (lambda self, obs: (self.body(obs), self.value(self.body(obs))[:, 0]), r"\(3, 3\).*\(3, 8\)"),
        (lambda self, obs: self.policy(self.body(obs)), r"must return \(params \[N, 3\], value \[N\]\)"),
        (lambda self, obs: self.body(obs[:, :2]), r"raised RuntimeError on .*'obs': \('float32', \(3, 4\)\)"),
    ],
)
def test_wrong_outputs_are_found_before_training(forward: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_policy(variant(forward=forward), VECTOR)


def test_a_constructor_that_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match=r"param_size=3\) raised TypeError"):
        build_policy(nn.Linear, VECTOR)
    with pytest.raises(ConfigError, match=r"must construct a torch.nn.Module \(tuple\)"):
        build_policy(lambda *args: args, VECTOR)  # type: ignore[arg-type]


def test_dict_observations_reach_an_own_module_as_a_dict() -> None:
    spec = EnvSpec.of(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(4, start=2)}), spaces.Discrete(3))
    seen = {}

    class Dicts(nn.Module):
        def __init__(self, *spaces: object) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 4)

        def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            seen.update(obs)
            out = self.layer(obs["a"])
            return out[:, :3], out[:, 3]

    build_policy(Dicts, spec)
    assert seen["a"].shape == (3, 2)
    assert seen["n"].tolist() == [2, 2, 2], "a legal category"


@pytest.mark.parametrize("action_space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_forward_pullback_of_the_mlp_equals_autograd(action_space: Any, activation: Any) -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (5,), np.float32), action_space)
    policy = build_policy("mlp", spec, hidden_sizes=(16, 8), activation=activation, seed=0)
    obs = torch.randn(11, 5)
    d_params, d_value = torch.randn(11, spec.action.param_size), torch.randn(11)
    params, value = policy(obs)
    torch.autograd.backward((params, value), (d_params, d_value))
    expected = [parameter.grad.clone() for parameter in policy.parameters() if parameter.grad is not None]
    policy.zero_grad()
    own_params, own_value, pullback = forward_pullback(policy, obs)
    assert not own_params.requires_grad
    torch.testing.assert_close(own_params, params.detach())
    torch.testing.assert_close(own_value, value.detach())
    pullback(d_params, d_value)
    got = [parameter.grad for parameter in policy.parameters()]
    torch.testing.assert_close(got, expected)


class Doubled(MLPPolicy):
    """Overrides `forward` alone: the fast forms that it inherits compute something else."""

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        params, value = super().forward(obs)
        return 2.0 * params, value


class DoubledFast(Doubled):
    """Brings its own fast form."""

    def forward_pullback(self, obs: Any) -> Any:
        raise NotImplementedError


def test_a_subclass_that_overrides_forward_is_trained_and_acts_with_its_own_forward() -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
    plain, doubled = MLPPolicy(spec, (4,), "tanh"), Doubled(spec, (4,), "tanh")
    doubled.load_state_dict(plain.state_dict())
    obs = torch.ones(4, 3)
    assert torch.allclose(forward_pullback(doubled, obs)[0], 2.0 * forward_pullback(plain, obs)[0])
    leaves = {"obs": np.ones((4, 3), np.float32)}
    acted = [actor_for(policy, spec, 2, 2)(leaves)[0].copy() for policy in (plain, doubled)]
    np.testing.assert_allclose(acted[1], 2.0 * acted[0], rtol=1e-6)


def test_fast_methods_count_only_beside_the_forward_that_they_replace() -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
    assert fast_method(MLPPolicy(spec, (4,), "tanh"), "numpy_actor") is not None
    assert fast_method(Doubled(spec, (4,), "tanh"), "numpy_actor") is None
    assert fast_method(DoubledFast(spec, (4,), "tanh"), "forward_pullback") is not None
    assert fast_method(torch.nn.Linear(3, 2), "forward_pullback") is None
