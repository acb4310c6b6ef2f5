"""Names of hosts and actions, and the meaning of the 145 action numbers.

0 is Sleep and 1 is Monitor. Eleven kinds of action follow, with one number per host each: 2-14 Analyse, 15-27 Remove,
28-131 the eight decoys, 132-144 Restore.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HOSTS: tuple[str, ...] = (
    "Defender",
    "Enterprise0",
    "Enterprise1",
    "Enterprise2",
    "Op_Host0",
    "Op_Host1",
    "Op_Host2",
    "Op_Server0",
    "User0",
    "User1",
    "User2",
    "User3",
    "User4",
)
"""In the order of observations and actions."""

TYPES: tuple[str, ...] = ("defender", "enterprise", "op_server", "op_host", "user")
HOST_TYPE: NDArray[np.int64] = np.array([0, 1, 1, 1, 3, 3, 3, 2, 4, 4, 4, 4, 4], np.int64)
"""[13] indices into `TYPES`."""

DECOYS: tuple[str, ...] = ("Apache", "Femitter", "Haraka", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
KINDS: tuple[str, ...] = ("Sleep", "Monitor", "Analyse", "Remove", *(f"Decoy{decoy}" for decoy in DECOYS), "Restore")
SLEEP, MONITOR, ANALYSE, REMOVE = range(4)
FIRST_DECOY, RESTORE = 4, 12

ACTIONS = 2 + (len(KINDS) - 2) * len(HOSTS)

ACTION_KIND: NDArray[np.int64] = np.concatenate(
    [[SLEEP, MONITOR], np.repeat(np.arange(ANALYSE, RESTORE + 1), len(HOSTS))]
).astype(np.int64)
"""[145] indices into `KINDS`."""
ACTION_HOST: NDArray[np.int64] = np.concatenate([[-1, -1], np.tile(np.arange(len(HOSTS)), len(KINDS) - 2)]).astype(
    np.int64
)
"""[145] indices into `HOSTS`; -1 for Sleep and Monitor."""
IS_FIX: NDArray[np.bool_] = (ACTION_KIND == REMOVE) | (ACTION_KIND == RESTORE)
"""[145] Whether the action is a fix (Remove or Restore), which takes a host back from the attacker."""

for _table in (HOST_TYPE, ACTION_KIND, ACTION_HOST, IS_FIX):
    _table.flags.writeable = False
