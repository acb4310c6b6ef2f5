"""Makes the fork server exit together with its driver, neither later nor earlier; only the fork server imports this.

Not later: an interpreter that has loaded torch takes 1 or 2 seconds to exit normally. On a busy machine that is longer
than the time after which no process of a killed run may remain.

Not earlier: a SIGTERM to the whole process group, as sent by a service manager, would end the server before the driver
has saved. The driver learns through the server that a worker has exited, so it would consider all workers dead.
"""

from __future__ import annotations

import atexit
import os
import signal

# Workers do not inherit this: multiprocessing clears it in every child.
atexit.register(os._exit, 0)
# Every worker sets its own handler as soon as it starts.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
