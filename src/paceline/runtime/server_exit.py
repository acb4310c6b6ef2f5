"""Imported by the fork server and nobody else: it ends when its driver does, neither later nor earlier.

Later: an interpreter that has loaded torch takes a second or two to leave in the ordinary way, and on a busy machine
longer than the time after which nothing of a killed run may be left.

Earlier: a SIGTERM to the whole process group, as a service manager sends it, would end the server before the driver
has saved; and the driver, which hears of its workers' ends through the server, would take them for dead.
"""

from __future__ import annotations

import atexit
import os
import signal

# Workers do not inherit this: multiprocessing clears it in every child.
atexit.register(os._exit, 0)
# Workers set a handler of their own first thing.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
