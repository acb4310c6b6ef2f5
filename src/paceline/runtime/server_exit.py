"""Imported by the fork server and nobody else: it then ends at once when its driver is gone.

An interpreter that has loaded torch takes a second or two to leave in the ordinary way, and on a busy machine
longer than the time after which nothing of a killed run may be left.
"""

from __future__ import annotations

import atexit
import os

# Workers do not inherit this: multiprocessing clears it in every child.
atexit.register(os._exit, 0)
