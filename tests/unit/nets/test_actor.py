"""Actors of any policy: the same outputs as the module, computed group by group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.nets.actor import DeferredValueActor, actor_for
from paceline.nets.flat import move_parameters, size_of
from paceline.nets.normalise import ObsNormaliser
from paceline.nets.policy import build_policy
from paceline.spec import EnvSpec

VECTOR = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))
PIXELS = EnvSpec.of(
    spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 3), np.uint8), "speed": spaces.Box(-1, 1, (2,))}),
    spaces.Discrete(3),
)


class Torch(nn.Module):
    """A module without a numpy forward; remembers the batch sizes it saw."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: list[int] = []

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append(len(obs))
        out = self.layer(obs)
        return out[:, :3], out[:, 3]


class Wide(nn.Module):
    """A network of one's own for any number of features."""

    def __init__(self, observation_space: Any, *_: Any) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(observation_space.shape[0], 64), nn.Linear(64, 4)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.out(torch.tanh(self.hidden(obs)))
        return out[:, :3], out[:, 3]


def draw(spec: EnvSpec, rows: int) -> dict[str, NDArray[Any]]:
    spec.observation_space.seed(3)
    raw = [spec.split(spec.observation_space.sample()) for _ in range(rows)]
    return {leaf.name: np.stack([r[leaf.name] for r in raw]) for leaf in spec.obs}


@pytest.mark.parametrize(("source", "spec"), [("mlp", VECTOR), (Torch, VECTOR), ("nature_cnn", PIXELS)])
@pytest.mark.parametrize("group_size", [1, 3])
def test_groups_are_computed_separately(source: Any, spec: EnvSpec, group_size: int) -> None:
    policy = build_policy(source, spec)
    obs = draw(spec, 3 * group_size)
    params, value = (a.copy() for a in actor_for(policy, spec, 3, group_size)(obs))
    assert params.shape == (3 * group_size, 3)
    assert value.shape == (3 * group_size,)
    one = actor_for(policy, spec, 1, group_size)
    for group in range(3):
        rows = slice(group * group_size, (group + 1) * group_size)
        alone = one({name: leaf[rows] for name, leaf in obs.items()})
        assert np.array_equal(alone[0], params[rows])
        assert np.array_equal(alone[1], value[rows])
    with torch.no_grad():
        leaves = {name: torch.from_numpy(leaf) for name, leaf in obs.items()}
        expected = policy(leaves if spec.dict_obs else leaves["obs"])
    np.testing.assert_allclose(params, expected[0], atol=1e-5)
    np.testing.assert_allclose(value, expected[1], atol=1e-5)


@pytest.mark.parametrize("features", [5, 17, 33])
@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_a_groups_bits_do_not_depend_on_its_memory_address(features: int, group_size: int) -> None:
    """A product's last bits may depend on where its input begins, and that depends on who owns which groups."""
    spec = EnvSpec.of(spaces.Box(-1, 1, (features,), np.float32), spaces.Discrete(3))
    policy, normaliser = build_policy(Wide, spec), ObsNormaliser(spec)
    normaliser.update({"obs": np.random.default_rng(0).random((10, 4, features), np.float32)})
    obs = draw(spec, 4 * group_size)
    params, value = (a.copy() for a in actor_for(policy, spec, 4, group_size, normaliser)(obs))
    one = actor_for(policy, spec, 1, group_size, normaliser)
    for group in range(4):
        rows = slice(group * group_size, (group + 1) * group_size)
        alone = one({"obs": obs["obs"][rows].copy()})
        assert np.array_equal(alone[0], params[rows])
        assert np.array_equal(alone[1], value[rows])


def test_torch_policies_get_one_group_per_forward() -> None:
    policy = build_policy(Torch, VECTOR)
    assert isinstance(policy, Torch)
    policy.seen.clear()
    actor_for(policy, VECTOR, 4, 2)(draw(VECTOR, 8))
    assert policy.seen == [2, 2, 2, 2]


@pytest.mark.parametrize("source", ["mlp", Torch])
def test_new_weights_and_statistics_are_used_at_once(source: Any) -> None:
    policy = build_policy(source, VECTOR)
    vector = torch.zeros(size_of(policy))
    move_parameters(policy, vector)
    normaliser = ObsNormaliser(VECTOR)
    actor, obs = actor_for(policy, VECTOR, 2, 2, normaliser), draw(VECTOR, 4)
    before = actor(obs)[1].copy()
    vector.mul_(1.5)
    after_weights = actor(obs)[1].copy()
    assert not np.array_equal(before, after_weights)
    normaliser.update({"obs": 5 + 3 * np.random.default_rng(0).random((10, 4, 4), np.float32)})
    with torch.no_grad():
        expected = policy(normaliser.apply_torch({"obs": torch.from_numpy(obs["obs"])})["obs"])[1]
    after_statistics = actor(obs)[1]
    assert not np.allclose(after_statistics, after_weights)
    np.testing.assert_allclose(after_statistics, expected, atol=1e-5)


def test_observations_are_not_modified() -> None:
    normaliser = ObsNormaliser(VECTOR)
    normaliser.update({"obs": np.random.default_rng(0).random((10, 4, 4), np.float32)})
    obs = draw(VECTOR, 4)
    before = obs["obs"].copy()
    actor_for(build_policy("mlp", VECTOR), VECTOR, 1, 4, normaliser)(obs)
    assert np.array_equal(obs["obs"], before)


@pytest.mark.parametrize("normalised", [False, True])
def test_deferred_values_have_the_bits_of_a_full_call(normalised: bool) -> None:
    normaliser = ObsNormaliser(VECTOR) if normalised else None
    if normaliser is not None:
        normaliser.update({"obs": 5 + 3 * np.random.default_rng(0).random((10, 4, 4), np.float32)})
    actor, obs = actor_for(build_policy("mlp", VECTOR), VECTOR, 2, 2, normaliser), draw(VECTOR, 4)
    assert isinstance(actor, DeferredValueActor)
    params, value = (array.copy() for array in actor(obs))
    later = np.empty((3, 4), np.float32)
    actor.values({name: np.stack([leaf] * 3) for name, leaf in obs.items()}, later)
    assert np.array_equal(actor.act(obs), params)
    assert all(np.array_equal(row, value) for row in later)


def test_a_users_actor_may_use_the_former_name_seat() -> None:
    class OldActor:
        def __call__(self, obs: Any) -> tuple[Any, Any]:
            return np.zeros((4, 3), np.float32), np.zeros(4, np.float32)

        def begin(self) -> None:
            pass

        def act(self, obs: Any) -> Any:
            return self(obs)[0]

        def values(self, obs: Any, value: Any) -> None:
            value[...] = 0

        def seat(self, at: int) -> Any:
            return lambda obs: np.full((1, 3), at, np.float32)

    class Old(Torch):
        def numpy_actor(self, groups: int, group_size: int) -> OldActor:
            return OldActor()

    actor = actor_for(build_policy(Old, VECTOR), VECTOR, 2, 2)
    assert isinstance(actor, DeferredValueActor)
    assert (actor.row_actor(1)({}) == 1).all()


def test_a_torch_module_has_no_deferred_values() -> None:
    assert not isinstance(
        actor_for(build_policy(Torch, VECTOR), VECTOR, 2, 2, ObsNormaliser(VECTOR)), DeferredValueActor
    )


TWO = spaces.Dict({"card": spaces.Discrete(5), "speed": spaces.Box(-1, 1, (3,))})


@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 7, 16, 17])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=["categories", "numbers"])
@pytest.mark.parametrize("observed", [spaces.Box(-9, 9, (4,)), spaces.Box(-9, 9, (33,)), TWO], ids=["4", "33", "two"])
def test_a_row_actor_gives_the_bits_of_its_group(
    observed: Any, actions: Any, normalised: bool, group_size: int
) -> None:
    spec = EnvSpec.of(observed, actions)
    normaliser = ObsNormaliser(spec) if normalised else None
    for activation in ("tanh", "relu"):
        policy = build_policy("mlp", spec, hidden_sizes=(64, 5), activation=activation, seed=1)
        actor = actor_for(policy, spec, 3, group_size, normaliser)
        assert isinstance(actor, DeferredValueActor)
        obs = draw(spec, 3 * group_size)
        if normaliser is not None:
            normaliser.update({name: leaf[None] for name, leaf in obs.items()})
        expected = actor.act(obs).copy()
        seats = [actor.row_actor(at) for at in range(group_size)]
        for turn in (0, 1):  # what a seat, or the others, saw before leaves no trace
            for i in np.random.default_rng(turn).permutation(len(expected)):
                found = seats[i % group_size]({name: leaf[i : i + 1] for name, leaf in obs.items()})
                assert found.tobytes() == expected[i : i + 1].tobytes()


def test_new_biases_are_used_after_begin_and_in_every_full_call() -> None:
    policy = build_policy("mlp", VECTOR, seed=1)
    actor, fresh = (actor_for(policy, VECTOR, 2, 3) for _ in range(2))
    assert isinstance(actor, DeferredValueActor)
    assert isinstance(fresh, DeferredValueActor)
    obs, value, new_value = draw(VECTOR, 6), np.empty((1, 6), np.float32), np.empty((1, 6), np.float32)
    for weights in policy.parameters():
        weights.data.add_(0.1)
    newest = actor_for(policy, VECTOR, 2, 3)
    params, values = newest(obs)
    assert fresh(obs)[0].tobytes() == params.tobytes()
    assert fresh(obs)[1].tobytes() == values.tobytes()
    actor.begin()
    actor.values({name: leaf[None] for name, leaf in obs.items()}, value)
    assert isinstance(newest, DeferredValueActor)
    newest.values({name: leaf[None] for name, leaf in obs.items()}, new_value)
    assert actor.act(obs).tobytes() == params.tobytes()
    assert value.tobytes() == new_value.tobytes()
