"""Compiling is tried once, and where it cannot be done training goes on as ever, with one warning."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.errors import LearnerError
from paceline.nets.compiled import CompiledForward, usable_rows
from paceline.nets.flat import FlatGradient
from paceline.nets.mlp import MLPPolicy
from paceline.nets.policy import forward_pullback
from paceline.spec import EnvSpec

VECTOR = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))


class Small(nn.Module):
    """A module that goes through autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, obs: Tensor | dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs if isinstance(obs, Tensor) else obs["there"] + obs["here"]).tanh()
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def refuse(rows: int) -> None:
    raise AssertionError("was tried")


def fail(rows: int) -> None:
    raise RuntimeError("no such instruction\nand a page of output")


def test_what_works_is_used() -> None:
    tried: list[int] = []
    assert usable_rows(Small(), 7, tried.append) == 7
    assert tried == [7]


@pytest.mark.parametrize("compiler", ["no-such-compiler", None])
def test_without_a_compiler_nothing_is_tried(compiler: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler is None:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", "")
    else:
        monkeypatch.setenv("CXX", compiler)
    with pytest.warns(RuntimeWarning, match=rf"no C\+\+ compiler found .*'{compiler or '(g|clang).+|cl'}'") as caught:
        assert usable_rows(Small(), 7, refuse) is None
    assert len(caught) == 1


def test_a_failing_compiler_is_quoted_in_one_line() -> None:
    with pytest.warns(RuntimeWarning, match="RuntimeError: no such instruction. Training continues") as caught:
        assert usable_rows(Small(), 7, fail) is None
    assert len(caught) == 1


def test_a_gradient_written_by_hand_is_left_alone() -> None:
    mlp = MLPPolicy(VECTOR)
    with pytest.warns(RuntimeWarning, match="MLPPolicy has a hand-written gradient"):
        assert usable_rows(mlp, 7, refuse) is None


def results(forward: Any, gradient: Tensor, obs: Tensor | dict[str, Tensor], rows: int) -> list[Tensor]:
    gradient.zero_()
    params, value, pullback = forward(obs)
    weight = torch.arange(1.0, rows + 1)
    pullback(weight[:, None] * torch.tensor([1.0, -2.0, 0.5]), weight.flip(0))
    return [params, value, gradient.clone()]


# Loading the compiler stack takes seconds, and warns of deprecations inside torch.
compiles = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(params=[pytest.param("trace", marks=compiles), pytest.param("compile", marks=compiles)])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All of `torch.compile`, and its front half alone, which takes a tenth of the time."""
    if request.param == "trace":
        whole = torch.compile
        monkeypatch.setattr(torch, "compile", lambda f, *, options, **more: whole(f, backend="eager", **more))
    return str(request.param)


@pytest.mark.parametrize("as_dict", [False, True])
def test_full_and_short_batches_give_the_gradient_of_eager(compiler: str, as_dict: bool) -> None:
    torch.manual_seed(0)
    policy = Small()
    gradient = FlatGradient(policy).vector
    space = spaces.Box(-1, 1, (4,))
    spec = EnvSpec.of(spaces.Dict(here=space, there=space) if as_dict else space, spaces.Discrete(3))
    compiled = CompiledForward(policy, spec, 6)
    for rows in (6, 4, 1):
        data = torch.randn(2, rows, 4)
        obs: Tensor | dict[str, Tensor] = {"here": data[0], "there": data[1]} if as_dict else data[0]
        expected = results(partial(forward_pullback, policy), gradient, obs, rows)
        for one, other in zip(results(compiled, gradient, obs, rows), expected, strict=True):
            assert not one.requires_grad
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    with pytest.raises(LearnerError, match=r"supports at most 6 rows \(got 7\)"):
        compiled(torch.randn(7, 4))


@pytest.mark.parametrize("compiler", [pytest.param("trace", marks=compiles)], indirect=True)
def test_policies_do_not_count_against_one_another(compiler: str) -> None:
    for rows in range(2, 14):  # torch keeps eight compiled pieces of one function
        CompiledForward(Small(), VECTOR, rows)
