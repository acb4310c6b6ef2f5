"""CartPole that hangs, crashes or exits when a request file exists; the first env that finds the file executes it."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

CHECK_EVERY = 8
"""Steps between two checks for the request file."""


class ChaosEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Behaves exactly like CartPole without a request.

    Args:
        control: Folder of the request file.
        wait_ms: Milliseconds that every step sleeps.
    """

    def __init__(self, control: str, wait_ms: float = 0.0) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._wait_s = wait_ms / 1e3
        self._request, self._steps = os.path.join(control, "request"), 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step CartPole, or execute a request."""
        self._steps += 1
        if self._steps % CHECK_EVERY == 0 and os.path.exists(self._request):
            self._execute()
        if self._wait_s:
            time.sleep(self._wait_s)
        return super().step(action)

    def _execute(self) -> None:
        mine = f"{self._request}.{os.getpid()}"
        try:
            os.rename(self._request, mine)
        except FileNotFoundError:
            return  # another env was faster
        request = Path(mine).read_text()
        os.unlink(mine)
        match request:
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
