"""A readable error for a learner's device that is out of memory."""

from __future__ import annotations

from paceline.config.train_config import TrainConfig
from paceline.errors import LearnerError

SETTINGS = ("batch_size", "buffer_size", "learning_steps_per_batch", "n_steps")
"""Settings of algorithms that determine how much memory the learner needs on its device."""


def out_of_memory(error: BaseException, config: TrainConfig) -> LearnerError | None:
    """The error to raise instead of an out-of-memory error, with the settings to lower; None for any other error.

    Recognised by its text: torch has an exception class for CUDA, but none for other devices.
    """
    if not isinstance(error, RuntimeError | MemoryError) or "out of memory" not in str(error).lower():
        return None
    training = config.training
    known = [name for name in SETTINGS if hasattr(training, name)]
    values = [f"{name}={value}" for name in known if (value := getattr(training, name)) is not None]
    flags = [f"--{name.replace('_', '-')}" for name in known]
    first = str(error).strip().splitlines()[0]
    return LearnerError(
        f"learner: {config.run.device} is out of memory ({', '.join([*values, f'n_envs={config.n_envs}'])}): {first}\n"
        f"Lower {', '.join(flags)} or --n-envs, take a smaller network, or use --device cpu."
    )
