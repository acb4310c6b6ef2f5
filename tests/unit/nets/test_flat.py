"""Parameters and gradients as views of one vector each."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.nets.flat import ALIGN, FlatGradient, bind, move_parameters, size_of


class Net(nn.Module):
    """A convolution, a linear layer used twice, a scalar and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 2)
        self.linear = nn.Linear(20, 20)
        self.tied = self.linear
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.tied(self.linear(self.conv(x).flatten(1)))
        return y * self.scale


def flat(module: nn.Module) -> Tensor:
    vector = torch.full((size_of(module),), float("nan"))
    move_parameters(module, vector)
    return vector


def inside(view: Tensor, vector: Tensor) -> bool:
    start = view.data_ptr() - vector.data_ptr()
    return 0 <= start < vector.numel() * 4


def test_values_survive_the_move_and_tied_parameters_are_stored_once() -> None:
    net = Net()
    before = copy.deepcopy(net.state_dict())
    vector = flat(net)
    assert all(torch.equal(net.state_dict()[k], v) for k, v in before.items())
    assert net.linear.weight is net.tied.weight
    assert vector.numel() == sum(-(-n // ALIGN) * ALIGN for n in (60, 5, 400, 20, 1, 3))
    assert torch.isfinite(vector).all(), "padding must be defined: it is hashed and normed"


def test_convolution_weights_are_channels_last_in_the_vector() -> None:
    net = Net()
    vector = flat(net)
    gradient = FlatGradient(net).vector
    assert net.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert inside(net.conv.weight, vector)
    assert net.conv.weight.grad is not None
    assert inside(net.conv.weight.grad, gradient)
    assert net.conv.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_every_parameter_starts_on_a_cache_line() -> None:
    net = Net()
    vector = flat(net)
    assert all((p.data_ptr() - vector.data_ptr()) % 64 == 0 for p in net.parameters())


@pytest.mark.parametrize("fused", [False, True])
def test_one_fused_step_equals_adam_over_the_single_parameters(fused: bool) -> None:
    torch.manual_seed(0)
    net, x = Net(), torch.randn(4, 3, 3, 3)
    twin = copy.deepcopy(net)
    whole = nn.Parameter(flat(net))
    whole.grad = gradient = FlatGradient(net).vector
    mine = torch.optim.Adam([whole], lr=0.01, fused=fused)
    theirs = torch.optim.Adam([p for p in twin.parameters() if p.requires_grad], lr=0.01)
    for _ in range(3):
        gradient.zero_()
        net(x).square().sum().backward()
        mine.step()
        theirs.zero_grad()
        twin(x).square().sum().backward()
        theirs.step()
    assert all(inside(p, whole) for p in net.parameters())
    for ours, expected in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_backward_accumulates_into_the_flat_gradient() -> None:
    net = Net()
    flat(net)
    gradient = FlatGradient(net).vector
    net(torch.ones(2, 3, 3, 3)).sum().backward()
    once = gradient.clone()
    net(torch.ones(2, 3, 3, 3)).sum().backward()
    assert once.abs().sum() > 0
    torch.testing.assert_close(gradient, 2 * once)


def test_loading_a_state_dict_keeps_the_views() -> None:
    net, other = Net(), Net()
    vector = flat(net)
    net.load_state_dict(other.state_dict())
    assert all(inside(p, vector) for p in net.parameters())
    assert torch.equal(net.linear.weight, other.linear.weight)


def test_a_bound_module_reads_what_the_learner_writes() -> None:
    net, worker = Net(), Net()
    vector = flat(net)
    published = vector.clone()
    bind(worker, vector)
    assert torch.equal(vector, published), "binding must not write"
    vector.add_(1.0)
    x = torch.randn(2, 3, 3, 3)
    assert torch.equal(worker(x), net(x))
    assert not any(p.requires_grad for p in worker.parameters())
    assert all(p.data_ptr() == q.data_ptr() for p, q in zip(worker.parameters(), net.parameters(), strict=True))


def test_a_vector_in_the_middle_of_a_larger_one_works() -> None:
    net, x = Net(), torch.randn(2, 3, 3, 3)
    expected = net(x)
    arena = torch.zeros(size_of(net) + 64)
    move_parameters(net, arena[32:-32])
    assert all(inside(p, arena[32:-32]) for p in net.parameters())
    torch.testing.assert_close(net(x), expected)
    assert (arena[:32] == 0).all()
    assert (arena[-32:] == 0).all()


def test_wrong_dtypes_and_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'weight': must be torch.float32 \(torch.float64\)"):
        flat(nn.Linear(2, 2).double())
    net = Net()
    with pytest.raises(ConfigError, match=str(size_of(net))):
        move_parameters(net, torch.zeros(3))
    with pytest.raises(ConfigError, match="flat storage"):
        bind(net, torch.zeros(size_of(net), dtype=torch.float64))
