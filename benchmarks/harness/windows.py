"""How libraries are measured in turns: the half of the protocol that runs inside each library's process.

    driver (contestants.py)                           library's script
      start, settings as JSON in argv ------------->  build
                        <-- {"library": ..., ...} --  ready
      a line "6.0" --------------------------------->  train: whole iterations, until 6 s have passed
              <-- {"steps": 98304, "seconds": 6.1} --  rest until the next line
      close stdin --------------------------------->  end

Standard library only: it is imported inside environments that have nothing else in common.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, TextIO


def answers() -> TextIO:
    """The stream to the driver. From now on whatever a library prints goes to stderr instead."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


class Windows:
    """Asked at every iteration's end, it reports and waits between windows.

    Args:
        stream: What `answers` gave.
        rest: Called before the process waits, where the library has processes that would go on by themselves.
        wake: Called after it.
        more: What else to say of a window.
        about: Facts for the driver: at least `library`.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        rest: Callable[[], object] = lambda: None,
        wake: Callable[[], object] = lambda: None,
        more: Callable[[], dict[str, Any]] = dict,
        **about: Any,
    ) -> None:
        self._stream, self._rest, self._wake, self._more = stream, rest, wake, more
        self._began = self._seconds = 0.0
        self._steps = -1
        self._say(about)

    def go_on(self, steps: int) -> bool:
        """Whether to train another iteration; blocks between windows.

        Args:
            steps: Env steps so far.
        """
        now = perf_counter()
        if self._steps >= 0:
            if now - self._began < self._seconds:
                return True
            self._rest()
            self._say({"steps": steps - self._steps, "seconds": now - self._began, **self._more()})
        else:
            self._rest()
        line = sys.stdin.readline()
        self._wake()
        if not line:
            return False
        self._seconds, self._steps, self._began = float(line), steps, perf_counter()
        return True

    def _say(self, answer: dict[str, Any]) -> None:
        self._stream.write(json.dumps(answer) + "\n")
        self._stream.flush()
