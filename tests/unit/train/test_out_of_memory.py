"""Errors of a device that is out of memory become errors that name the settings to lower."""

from __future__ import annotations

import pytest

from paceline.config.train_config import TrainConfig
from paceline.errors import LearnerError
from paceline.train.out_of_memory import out_of_memory

PPO = TrainConfig.from_flat(env="CartPole-v1", n_envs=32, n_steps=64, batch_size=256, device="cpu")
CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 8 GiB"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(CUDA),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.01 GB)"),
        MemoryError("Out of memory"),
    ],
)
def test_the_error_of_each_device_is_recognised_by_its_text(error: Exception) -> None:
    found = out_of_memory(error, PPO)
    assert isinstance(found, LearnerError)
    assert str(error).splitlines()[0] in str(found)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("shape mismatch"), ValueError("out of memory"), MemoryError(), KeyboardInterrupt("out of memory")],
)
def test_other_errors_are_not_replaced(error: BaseException) -> None:
    assert out_of_memory(error, PPO) is None


def test_the_text_names_device_values_and_flags_to_lower() -> None:
    text = str(out_of_memory(RuntimeError(CUDA), PPO))
    assert text.startswith("learner: cpu is out of memory (batch_size=256, n_steps=64, n_envs=32): CUDA out of memory.")
    assert "8 GiB" not in text, "only the first line of torch's text"
    assert "Lower --batch-size, --n-steps or --n-envs" in text
    assert "--device cpu" in text


def test_only_settings_of_the_algorithm_are_named_and_unset_ones_without_a_value() -> None:
    dqn = TrainConfig.from_flat(env="CartPole-v1", algo="dqn", batch_size=128, buffer_size=5000)
    text = str(out_of_memory(RuntimeError("out of memory"), dqn))
    assert "batch_size=128, buffer_size=5000, n_envs=" in text
    assert "--learning-steps-per-batch" in text
    assert "None" not in text
    assert "buffer" not in str(out_of_memory(RuntimeError("out of memory"), PPO))
