"""Effects of the defender's actions and the attacker's acts on one host, as tables over the state of the host.

The state of a host is one integer, its *word*: four flags (`REMOVABLE` to `MALWARE`) in the low bits and its setup (see
`services`) above them. One look-up by word and action gives the next word, for any number of games.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import (
    ACTION_HOST,
    ACTION_KIND,
    ACTIONS,
    ANALYSE,
    DECOYS,
    FIRST_DECOY,
    HOSTS,
    REMOVE,
    RESTORE,
)
from paceline.domains.cyber.services import (
    DECOYED,
    DECOYS_OF,
    EXPLOITS,
    PLACED,
    REFUSED,
    ROOT_SHELL,
    SETUPS,
    SHELL,
    SSH_IN,
    SSH_REFUSED,
)

# The number of sessions of one kind does not matter: Remove ends all removable ones, Restore ends all. Once a session
# is privileged, only Restore changes what the attacker can do or what the host costs.
REMOVABLE, OTHER, PRIVILEGED, MALWARE = 1, 2, 4, 8
"""Flags: a user session with an alert, which Remove ends; another user session; a privileged session; a malware file
that Analyse finds."""
HELD = REMOVABLE | OTHER | PRIVILEGED
SETUP_SHIFT = 4
WORDS = SETUPS << SETUP_SHIFT

USER0 = HOSTS.index("User0")
OP_SERVER0 = HOSTS.index("Op_Server0")
FOOTHOLD: NDArray[np.int64] = np.where(np.arange(len(HOSTS)) == USER0, PRIVILEGED, 0)
"""[13] initial words: a privileged session on User0, which no action removes."""
LEVEL: NDArray[np.int8] = np.array([2 if flags & PRIVILEGED else int(flags > 0) for flags in range(8)], np.int8)
"""[8] the attacker's level by session flags: 0 none, 1 user, 2 privileged."""

COST: NDArray[np.int64] = np.array([1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1])
"""[13] cost per step, in tenths of a point, of a host on which the attacker has a privileged session."""
OT_COST, RESTORE_COST = 100, 10

# --- The defender

NO, UNKNOWN, USER, FULL = range(4)
"""Beliefs about a host."""

_EVERY_WORD = np.arange(WORDS)


def _placing(action: int) -> NDArray[np.int64]:
    """[words] 1 for words in which the action places a decoy."""
    kind, host = ACTION_KIND[action], ACTION_HOST[action]
    if not FIRST_DECOY <= kind < RESTORE:
        return np.zeros(WORDS, np.int64)
    placed: NDArray[np.int64] = PLACED[host, _EVERY_WORD >> SETUP_SHIFT, kind - FIRST_DECOY].astype(np.int64)
    return placed


DECOY_PLACED: NDArray[np.int64] = np.array([_placing(action) for action in range(ACTIONS)])
"""[145, words]"""


@cache
def defended(*, breaks: bool) -> NDArray[np.int64]:
    """[145, words] the next word of the action's host.

    Args:
        breaks: Whether Restore leaves Haraka broken on User3 and User4.
    """
    table = np.tile(_EVERY_WORD, (ACTIONS, 1))
    for action, (kind, host) in enumerate(zip(ACTION_KIND.tolist(), ACTION_HOST.tolist(), strict=True)):
        if kind == REMOVE:
            table[action] &= ~REMOVABLE
        elif kind == RESTORE:
            haraka = int(breaks and HOSTS[host] in ("User3", "User4"))
            table[action] = FOOTHOLD[host] | (_EVERY_WORD >> SETUP_SHIFT & 1 | haraka) << SETUP_SHIFT
        elif kind >= FIRST_DECOY and (decoy := DECOYS[kind - FIRST_DECOY]) in DECOYS_OF[host]:
            table[action] |= DECOY_PLACED[action] << 1 + SETUP_SHIFT + DECOYS_OF[host].index(decoy)
    table.flags.writeable = False
    return table


_BELIEVED_AFTER = {RESTORE: (NO, NO, NO, NO), REMOVE: (NO, UNKNOWN, UNKNOWN, UNKNOWN)}
BELIEVED: NDArray[np.int64] = np.array(
    [_BELIEVED_AFTER.get(kind, (NO, UNKNOWN, USER, FULL)) for kind in ACTION_KIND.tolist()]
)
"""[145, 4] the next belief about the action's host."""
FINDS: NDArray[np.bool_] = np.outer(ACTION_KIND == ANALYSE, _EVERY_WORD & MALWARE > 0)
"""[145, words] whether Analyse finds a file."""
BLUE_HOST: NDArray[np.int64] = np.maximum(ACTION_HOST, 0)
"""[145] the action's host. Sleep and Monitor have host 0, on which they change nothing."""
BLUE_COST: NDArray[np.int64] = np.where(ACTION_KIND == RESTORE, RESTORE_COST, 0)
RESTORES_OT: NDArray[np.bool_] = (ACTION_KIND == RESTORE) & (ACTION_HOST == OP_SERVER0)

# --- The attacker

REST, PING, SCAN, EXPLOIT, ESCALATE, IMPACT = range(6)
"""Kinds of the attacker's acts."""
RED_KINDS = 6

NO_CHANGE, ADD_OTHER, ADD_REMOVABLE, ADD_HIDDEN, ADD_ROOT, RAISE = range(6)
QUIET, SCANNED, TOUCHED, TOUCHED_TWICE, HAMMERED, SHELL_SEEN = range(6)
"""Connections that a step leaves on a host: none; one to every port; one to a single port; two to a single port; ten to
port 22; one to a port and one from a reverse shell."""

CHANGE: NDArray[np.int64] = np.zeros((7, 2), np.int64)
"""[outcome, seen] the change that an exploit makes to a word."""
CHANGE[SSH_IN], CHANGE[SHELL], CHANGE[ROOT_SHELL] = ADD_OTHER, (ADD_HIDDEN, ADD_REMOVABLE), ADD_ROOT
TRACE: NDArray[np.int64] = np.zeros((7, 2), np.int64)
"""[outcome, seen] the trace that an exploit leaves."""
TRACE[REFUSED], TRACE[DECOYED], TRACE[[SSH_REFUSED, SSH_IN]] = TOUCHED, TOUCHED_TWICE, HAMMERED
TRACE[[SHELL, ROOT_SHELL]] = (TOUCHED, SHELL_SEEN)

_ADDED = (0, OTHER, REMOVABLE | MALWARE, OTHER | MALWARE, PRIVILEGED | MALWARE)
_RAISED = np.where((_EVERY_WORD & HELD > 0) & (_EVERY_WORD & PRIVILEGED == 0), PRIVILEGED | MALWARE, 0)
ATTACKED: NDArray[np.int64] = np.array([*(_EVERY_WORD | added for added in _ADDED), _EVERY_WORD | _RAISED])
"""[change, words] the next word."""


def _succeeds(kind: int, held: int, reached: int, inside: int) -> bool:
    return bool((False, reached, True, inside, held, held)[kind])


SUCCESS: NDArray[np.bool_] = np.array(
    [[[[_succeeds(k, h, r, i) for i in (0, 1)] for r in (0, 1)] for h in (0, 1)] for k in range(RED_KINDS)]
)
"""[kind, held, reached, inside] whether an act succeeds. A scan of an unreachable host succeeds and shows no port.
Attackers try Impact only after they have escalated on the server."""

_MASKS = 1 << len(EXPLOITS)
OTHER_OPTIONS: NDArray[np.uint64] = np.array([max(mask.bit_count() - 1, 0) for mask in range(_MASKS)], np.uint64)
"""[256] number of the other exploits in a set of options."""
NTH_OPTION: NDArray[np.int64] = np.array(
    [([bit for bit in range(8) if mask >> bit & 1] + [0] * 8)[:8] for mask in range(_MASKS)]
)
"""[256, 8] the exploits of a set of options, the preferred one first, padded with 0."""

# --- The defender's observation

NONE, SCANNING, EXPLOITING = range(3)


def _activity(ports: int, green: bool, trace: int, decoy: bool) -> int:
    """The activity that the connections of one step show on a host; a new decoy counts as one connection."""
    scans = int(green) + (trace == SCANNED)
    count = scans * ports + (0, 0, 1, 2, 10, 2)[trace] + decoy
    distinct = (ports if scans else int(trace > SCANNED)) + (trace == SHELL_SEEN)
    if count >= 3 and distinct >= 3:
        return SCANNING
    if trace == SHELL_SEEN or (count >= 3 and distinct == 1):
        return EXPLOITING
    return NONE if decoy or not count else SCANNING


ACTIVITY: NDArray[np.int64] = np.array(
    [
        [[[_activity(p, bool(g), trace, bool(d)) for d in (0, 1)] for trace in range(6)] for g in (0, 1)]
        for p in range(4)
    ]
)
"""[ports, green, trace, decoy] the activity shown on a host."""
BITS: NDArray[np.float32] = np.array(
    [[*activity, *belief] for activity in ((0, 0), (1, 0), (1, 1)) for belief in ((0, 0), (1, 0), (0, 1), (1, 1))],
    np.float32,
)
"""[activity * 4 + belief, 4] the bits of a host in the observation."""
