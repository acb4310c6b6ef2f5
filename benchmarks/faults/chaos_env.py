"""CartPole that hangs, crashes or leaves when a file asks for it: the first env to see the file obeys it, alone."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

EVERY = 8
"""Steps between two looks."""


class ChaosEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Otherwise CartPole, to the bit.

    Args:
        control: The folder of the file.
        wait_ms: How long every step waits.
    """

    def __init__(self, control: str, wait_ms: float = 0.0) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._wait_s = wait_ms / 1e3
        self._order, self._steps = os.path.join(control, "order"), 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the env's own, unless there is an order."""
        self._steps += 1
        if self._steps % EVERY == 0 and os.path.exists(self._order):
            self._obey()
        if self._wait_s:
            time.sleep(self._wait_s)
        return super().step(action)

    def _obey(self) -> None:
        mine = f"{self._order}.{os.getpid()}"
        try:
            os.rename(self._order, mine)
        except FileNotFoundError:
            return  # another was faster
        order = Path(mine).read_text()
        os.unlink(mine)
        match order:
            case "hang":
                time.sleep(3600)
            case "hang_gil":
                ctypes.PyDLL(None).pause()
                while True:
                    ctypes.PyDLL(None).usleep(1_000_000)
            case "exit":
                os._exit(7)
            case "sys_exit":
                sys.exit(3)
            case "segfault":
                ctypes.string_at(0)
