"""The DQN learner on hand-made transitions: loss, target network, schedules, skipped updates and state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.algos.bad_updates import MAX_BAD_UPDATES
from paceline.algos.dqn import DQNLearner, Epsilon
from paceline.batch import Transitions
from paceline.config.dqn_settings import DQNConfig
from paceline.errors import LearnerError
from paceline.measure.clock import Clock
from paceline.memory.shared import Arena
from paceline.memory.weights import Weights
from paceline.nets.array_net import array_net_for
from paceline.nets.flat import bind, move_parameters, size_of
from paceline.nets.policy import build_policy
from paceline.spec import PLAIN, EnvSpec

D, ACTIONS, N = 3, 4, 8
SPEC = EnvSpec.of(spaces.Box(-np.inf, np.inf, (D,), np.float32), spaces.Discrete(ACTIONS))


def transitions(seed: int = 0) -> Transitions:
    """Random transitions; some are terminal, and some next actions are illegal."""
    rng = np.random.default_rng(seed)
    discount = np.full(N, 0.9, np.float32)
    discount[::3] = 0.0
    mask = rng.random((N, ACTIONS)) < 0.6
    mask[:, 1] = True
    return Transitions(
        obs={PLAIN: rng.normal(size=(N, D)).astype(np.float32)},
        action=rng.integers(0, ACTIONS, N),
        reward=rng.normal(size=N).astype(np.float32) * 2,
        discount=discount,
        next_obs={PLAIN: rng.normal(size=(N, D)).astype(np.float32)},
        next_mask=mask,
    )


class Sampler:
    """Draws all items in order, and notes what the learner reports about them."""

    def __init__(self, weight: NDArray[np.float32] | None) -> None:
        self.weight, self.betas = weight, list[float]()
        self.errors: list[NDArray[np.float32]] = []

    def draw(self, _: np.random.Generator, count: int, beta: float) -> tuple[NDArray[np.int64], Any]:
        assert count == N
        self.betas.append(beta)
        return np.arange(N), self.weight

    def update_priorities(self, _: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        self.errors.append(error.copy())


class Rig(DQNLearner):
    arena: Arena
    policy: torch.nn.Module
    target_policy: torch.nn.Module
    sampler: Sampler
    data: Transitions


Make = Callable[..., Rig]


@pytest.fixture
def make() -> Iterator[Make]:
    arenas = []

    def learner(*, weight: NDArray[np.float32] | None = None, **settings: Any) -> Rig:
        config = DQNConfig(**{"batch_size": N, "max_grad_norm": 1e9, **settings})
        policy = build_policy("mlp", SPEC, hidden_sizes=(16,), activation="tanh", seed=1)
        size = size_of(policy)
        arena = Arena.create(Weights.fields(size))
        arenas.append(arena)
        weights = Weights(arena)
        move_parameters(policy, weights.vector)
        target, target_vector = copy.deepcopy(policy), weights.vector.clone()
        bind(target, target_vector)
        data = transitions()
        replay: Any = SimpleNamespace(
            gather=lambda _: data, stored=40, head=np.array([5, 5]), shape=SimpleNamespace(group_size=4)
        )
        sampler = Sampler(weight)
        rig = Rig(
            array_net_for(policy, SPEC, both=config.dueling),
            array_net_for(target, SPEC, learns=False, both=config.dueling),
            (weights.vector, target_vector),
            weights,
            replay,
            sampler,  # type: ignore[arg-type]
            Epsilon(config, np.zeros(8, np.float32), 2),
            config,
            seed=1,
            clock=Clock(),
        )
        rig.arena, rig.policy, rig.target_policy, rig.sampler, rig.data = arena, policy, target, sampler, data
        return rig

    yield learner
    for arena in arenas:
        arena.close()


def q(policy: torch.nn.Module, obs: NDArray[np.float32], *, dueling: bool) -> torch.Tensor:
    params, value = policy(torch.from_numpy(obs))
    found: torch.Tensor = value[:, None] + params - params.mean(1, keepdim=True) if dueling else params
    return found


def loss_by_definition(rig: Rig, policy: torch.nn.Module, *, dueling: bool, double: bool, loss: str) -> torch.Tensor:
    """[N] losses as the papers write them, row by row, for autograd."""
    data, losses = rig.data, []
    values = q(policy, data.obs[PLAIN], dueling=dueling)
    with torch.no_grad():
        by_target = q(rig.target_policy, data.next_obs[PLAIN], dueling=dueling)
        by_online = q(policy, data.next_obs[PLAIN], dueling=dueling)
    assert data.next_mask is not None
    for row in range(N):
        legal = [action for action in range(ACTIONS) if data.next_mask[row, action]]
        best = max(legal, key=lambda action: float((by_online if double else by_target)[row, action]))
        aim = float(data.reward[row]) + float(data.discount[row]) * float(by_target[row, best])
        chosen = values[row, int(data.action[row])]
        kind = torch.nn.functional.huber_loss if loss == "huber" else lambda a, b: (a - b) ** 2 / 2
        losses.append(kind(chosen, torch.tensor(aim)))
    return torch.stack(losses)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient_are_those_of_the_definition(
    dueling: bool, double: bool, loss: str, weighted: bool, make: Make
) -> None:
    weight = np.linspace(0.2, 1.0, N, dtype=np.float32) if weighted else None
    rig = make(dueling=dueling, double=double, loss=loss, weight=weight, learning_rate=1e-30)
    with torch.no_grad():  # a target network that differs from the online one
        rig._target_vector.normal_(generator=torch.Generator().manual_seed(2))
    online = copy.deepcopy(rig.policy)
    for parameter in online.parameters():
        parameter.requires_grad_(True)
    losses = loss_by_definition(rig, online, dueling=dueling, double=double, loss=loss)
    mean = (losses * (1.0 if weight is None else torch.from_numpy(weight))).mean()
    mean.backward()
    stats = rig.update(1, 0.0)
    assert stats["loss"] == pytest.approx(mean.item(), rel=1e-4)
    start = rig._vector.data_ptr()
    for bound, expected in zip(rig.policy.parameters(), online.parameters(), strict=True):
        at = (bound.data_ptr() - start) // 4
        found = rig._net.gradient[at : at + bound.numel()].reshape(bound.shape)
        wanted = torch.zeros_like(found) if expected.grad is None else expected.grad
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        values = q(online, rig.data.obs[PLAIN], dueling=dueling)
    assert stats["mean_q"] == pytest.approx(float(values[range(N), rig.data.action].mean()), rel=1e-4)
    assert rig.sampler.errors[0].mean() == pytest.approx(stats["td_error"])
    assert (rig.sampler.errors[0] >= 0).all()


def test_learning_reduces_the_loss(make: Make) -> None:
    rig = make(learning_rate=0.01, target_update=1000)
    first, last = rig.update(1, 0.0)["loss"], 0.0
    for _ in range(200):
        last = rig.update(1, 0.0)["loss"]
    assert last < 0.1 * first


def test_an_update_publishes_once_and_counts_steps_and_samples(make: Make) -> None:
    rig = make()
    stats = rig.update(5, 0.0)
    assert (rig.n_updates, rig.samples, rig.version) == (5, 5 * N, 1)
    assert (stats["n_updates"], stats["buffer_size"]) == (5.0, 40.0)
    assert stats["samples_per_insert"] == 5 * N / 40


def test_without_a_step_weights_stay_and_no_loss_is_reported(make: Make) -> None:
    rig = make()
    before = rig._vector.clone()
    stats = rig.update(0, 0.0)
    assert torch.equal(rig._vector, before)
    assert not {"loss", "mean_q", "td_error"} & set(stats)
    assert rig.version == 1


def test_the_target_network_is_copied_every_so_many_updates(make: Make) -> None:
    rig = make(target_update=3)
    start = rig._vector.clone()
    rig.update(2, 0.0)
    assert torch.equal(rig._target_vector, start)
    rig.update(1, 0.0)
    assert torch.equal(rig._target_vector, rig._vector)
    rig.update(1, 0.0)
    assert not torch.equal(rig._target_vector, rig._vector)


def test_with_tau_the_target_network_follows_in_every_update(make: Make) -> None:
    rig = make(tau=0.25)
    start = rig._vector.clone()
    rig.update(1, 0.0)
    torch.testing.assert_close(rig._target_vector, 0.75 * start + 0.25 * rig._vector)


def test_the_gradient_norm_is_clipped(make: Make) -> None:
    rig = make(max_grad_norm=0.01)
    rig.update(1, 0.0)
    assert float(rig._net.gradient.norm()) == pytest.approx(0.01, rel=1e-3)


def test_the_exponent_of_importance_sampling_rises_to_one_with_progress(make: Make) -> None:
    rig = make(priority_beta=0.4)
    for progress in (0.0, 0.5, 1.0):
        rig.update(1, progress)
    assert rig.sampler.betas == pytest.approx([0.4, 0.7, 1.0])


def test_learning_rate_schedules(make: Make) -> None:
    linear, constant = (make(lr_schedule=schedule, learning_rate=0.01) for schedule in ("linear", "constant"))
    assert [linear.update(1, p)["learning_rate"] for p in (0.0, 0.25, 1.0)] == pytest.approx([0.01, 0.0075, 0.0])
    assert constant.update(1, 0.5)["learning_rate"] == 0.01


def test_optimise_leaves_schedules_as_they_were(make: Make) -> None:
    rig = make(exploration_fraction=1.0)
    rig.update(1, 0.5)
    epsilon, beta = rig._epsilon.value, rig.sampler.betas[-1]
    assert 0.05 < epsilon < 1.0, "`update` advances it"
    assert rig.optimise(3)["epsilon"] == epsilon
    assert rig.sampler.betas[-1] == beta
    assert rig.n_updates == 4


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(make: Make) -> None:
    rig = make()
    before = rig._vector.clone()
    rig.data.reward[2] = np.nan
    stats = rig.update(2, 0.0)
    assert torch.equal(rig._vector, before)
    assert (rig.bad.count, rig.n_updates, rig.samples) == (2, 0, 0)
    assert stats["loss"] == 0.0
    assert rig.sampler.errors == [], "no priorities from NaN"
    with pytest.raises(LearnerError, match="NaN or infinite"):
        rig.update(MAX_BAD_UPDATES, 0.0)


def test_a_resumed_learner_continues_bit_by_bit(make: Make) -> None:
    rig, resumed, warm = make(target_update=4), make(target_update=4), make(target_update=4)
    rig.update(3, 0.3)
    state = {key: np.array(value) for key, value in rig.state().items()}
    resumed.load(state)
    warm.load_weights(state["weights"])
    assert (resumed.version, resumed.n_updates, resumed.samples) == (1, 3, 3 * N)
    assert resumed._epsilon.value == rig._epsilon.value
    assert torch.equal(warm._vector, rig._vector)
    assert torch.equal(warm._target_vector, rig._vector), "a warm start sets both networks"
    for one in (rig, resumed, warm):
        one.update(3, 0.4)
    assert torch.equal(resumed._vector, rig._vector)
    assert torch.equal(resumed._target_vector, rig._target_vector)
    assert not torch.equal(warm._vector, rig._vector), "without the moments of Adam"


def schedule(envs: int = 4, groups: int = 2, **settings: Any) -> tuple[Epsilon, NDArray[np.float32]]:
    shown = np.zeros(envs, np.float32)
    return Epsilon(DQNConfig(**settings), shown, groups), shown


def test_epsilon_falls_linearly_over_the_exploration_fraction() -> None:
    epsilon, shown = schedule(epsilon_start=1.0, epsilon_end=0.2, exploration_fraction=0.5)
    assert shown.tolist() == [1.0] * 4
    seen = []
    for progress in (0.0, 0.25, 0.5, 0.9):
        epsilon.advance(progress)
        seen.append(epsilon.value)
        assert shown == pytest.approx(epsilon.value)
    assert seen == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_without_an_exploration_fraction_epsilon_is_at_its_end_at_once() -> None:
    epsilon, _ = schedule(epsilon_end=0.2, exploration_fraction=0.0)
    epsilon.advance(0.0)
    assert epsilon.value == pytest.approx(0.2)


def test_epsilon_may_decay_by_a_factor_per_batch() -> None:
    epsilon, _ = schedule(epsilon_decay=0.5, epsilon_end=0.2)
    seen = []
    for _ in range(4):
        epsilon.advance(0.9)
        seen.append(epsilon.value)
    assert seen == pytest.approx([0.5, 0.25, 0.2, 0.2])


def test_with_a_ladder_each_group_has_an_epsilon_of_its_own() -> None:
    epsilon, shown = schedule(envs=6, groups=3, epsilon_ladder=4.0)
    epsilon.set(0.5)
    assert shown == pytest.approx([0.5, 0.5, 0.5**3, 0.5**3, 0.5**5, 0.5**5])
    _, alone = schedule(envs=2, groups=1, epsilon_ladder=4.0, epsilon_start=0.5)
    assert alone.tolist() == [0.5, 0.5]
