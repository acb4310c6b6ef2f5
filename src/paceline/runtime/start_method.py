"""Checks of the start method of worker processes, before any of them is started."""

from __future__ import annotations

import multiprocessing
import threading
import warnings

import torch

from paceline.errors import ConfigError
from paceline.runtime.forkserver import StartMethod


def check_start_method(method: StartMethod) -> None:
    """Raise or warn if workers cannot, or perhaps cannot, be started with this method.

    Raises:
        ConfigError: The platform does not have the method, or CUDA is initialised and would not survive a fork.
    """
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise ConfigError(f"start_method={method!r}: must be one that this platform has ({', '.join(known)}).")
    if method != "fork":
        return
    if torch.cuda.is_initialized():
        raise ConfigError("start_method='fork': CUDA is initialised here and does not survive a fork. Use forkserver.")
    if threading.active_count() > 1:
        warnings.warn(
            f"start_method='fork' with {threading.active_count()} threads alive: a lock that one of them holds "
            "stays locked in the workers. Prefer forkserver.",
            RuntimeWarning,
            stacklevel=3,
        )
