"""The torch thread count is set while the learner learns, and restored after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from paceline.algos.torch_threads import torch_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_count_holds_inside_the_context_only() -> None:
    with torch_threads(3):
        assert torch.get_num_threads() == 3
        with torch_threads(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 1


def test_an_exception_inside_restores_the_count() -> None:
    with pytest.raises(ValueError, match="loss"), torch_threads(3):
        raise ValueError("loss")
    assert torch.get_num_threads() == 1


def test_torch_is_not_called_if_the_count_is_already_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting the count costs microseconds, in every minibatch."""
    calls: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    with torch_threads(1):
        pass
    assert calls == []
    with torch_threads(2):
        pass
    assert calls == [2, 1]
