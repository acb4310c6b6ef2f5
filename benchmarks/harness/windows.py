"""Train in windows of time that the driver asks for: the child's half of the protocol.

    driver (contestants.py)                           child process (one library)
      start, settings as JSON in argv ------------->  build the training
                        <-- {"library": ..., ...} --  ready
      a line "6.0" --------------------------------->  train whole iterations until 6 s have passed
              <-- {"steps": 98304, "seconds": 6.1} --  wait for the next line
      close stdin --------------------------------->  exit

Standard library only, because every library's virtual environment imports it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, TextIO


def reply_stream() -> TextIO:
    """Reserve stdout for replies to the driver and redirect everything else that prints to stderr."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


class Windows:
    """Report each window to the driver and block until it asks for the next one.

    Args:
        stream: Return value of `reply_stream`.
        pause: Called before blocking, for libraries whose processes would otherwise keep collecting.
        resume: Called after blocking.
        extra: Returns further entries for the reply about a window.
        about: Entries of the first reply; the driver needs at least `library`.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        pause: Callable[[], object] = lambda: None,
        resume: Callable[[], object] = lambda: None,
        extra: Callable[[], dict[str, Any]] = dict,
        **about: Any,
    ) -> None:
        self._stream, self._pause, self._resume, self._extra = stream, pause, resume, extra
        self._began = self._seconds = 0.0
        self._steps = -1
        self._send(about)

    def keep_training(self, steps: int) -> bool:
        """Call this at the end of every iteration: False ends the training. Blocks between windows.

        Args:
            steps: Env steps since the training began.
        """
        now = perf_counter()
        if self._steps >= 0:
            if now - self._began < self._seconds:
                return True
            self._pause()
            self._send({"steps": steps - self._steps, "seconds": now - self._began, **self._extra()})
        else:
            self._pause()
        line = sys.stdin.readline()
        self._resume()
        if not line:
            return False
        self._seconds, self._steps, self._began = float(line), steps, perf_counter()
        return True

    def _send(self, reply: dict[str, Any]) -> None:
        self._stream.write(json.dumps(reply) + "\n")
        self._stream.flush()
