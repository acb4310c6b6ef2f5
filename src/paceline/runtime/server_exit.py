"""Imported only by the fork server: makes it exit together with its driver, neither later nor earlier.

Later: an interpreter that has loaded torch takes 1 or 2 seconds to exit normally. On a busy machine that is longer than
the time after which no process of a killed run may remain.

Earlier: a SIGTERM to the whole process group, as sent by a service manager, would end the server before the driver has
saved. The driver learns of its workers' exits through the server, so it would take the workers for dead.
"""

from __future__ import annotations

import atexit
import os
import signal

# Workers do not inherit this: multiprocessing clears it in every child.
atexit.register(os._exit, 0)
# Workers set a handler of their own first thing.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
