"""Train with the checkout on PYTHONPATH, in windows that the suite `two_checkouts` asks for.

Uses public names of the package only, so that the same file runs old and new checkouts.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Before numpy and torch are imported, as the command line does.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

from benchmarks.harness.windows import Windows, reply_stream  # noqa: E402


class WindowCallback:
    """A training callback that reports each window and blocks until the next one."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def on_update(self, moment: Any) -> bool:
        """Called after each update. The first call begins the first window, so start-up is not measured."""
        return self._windows.keep_training(moment.steps)


def main() -> None:
    """Build the agent from the settings in the first argument, and train until stdin is closed."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = reply_stream()
    import paceline  # only now, so that nothing it prints reaches the replies

    agent_class = {"ppo": paceline.PPO, "dqn": paceline.DQN}[settings.pop("algo")]
    with agent_class(settings.pop("env"), n_eval_episodes=0, seed=0, **settings) as agent:
        callback = WindowCallback(Windows(stream, library="paceline", source=str(paceline.__file__)))
        agent.learn(total_timesteps=10**9, callbacks=[callback])


if __name__ == "__main__":
    main()
