"""Makes the fork server exit together with its driver, neither later nor earlier; only the fork server imports this.

At its exit it kills all of its descendants: the workers, and what their envs have started, in any process group.

Not later: an interpreter that has loaded torch takes 1 or 2 seconds to exit normally. On a busy machine that is longer
than the time after which no process of a killed run may remain.

Not earlier: a SIGTERM to the whole process group, as sent by a service manager, would end the server before the driver
has saved. The driver learns through the server that a worker has exited, so it would consider all workers dead.
"""

from __future__ import annotations

import atexit
import os
import signal
import warnings

from paceline.runtime.server_guard import driver_pipe
from paceline.system.descendants import adopt_orphans, kill_children
from paceline.system.die_with_parent import outlive_parent


def end() -> None:
    """Exit, after killing the processes that envs of ended workers have left behind."""
    kill_children()
    os._exit(0)


# Workers do not inherit this: multiprocessing clears it in every child.
atexit.register(end)
adopt_orphans()
# From here on the server waits for requests, so it notices at once when the driver's pipe closes, and can run `end`.
if (fd := driver_pipe()) is not None:
    outlive_parent(fd)
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an adopted process has ended
# Every worker sets its own handler as soon as it starts.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
