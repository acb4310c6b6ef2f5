"""`Network`: n games of network defence, stepped together by table look-ups.

    the defender acts -> green users scan (optional) -> the attacker acts -> cost -> the defender's observation

Random numbers of a game depend on its seed, episode and step only, so its course is independent of the other games.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTIONS, HOSTS
from paceline.domains.cyber.attackers import ATTACKERS, Attacker, Flags, GameRows, Ints
from paceline.domains.cyber.scenario import Scenario
from paceline.domains.cyber.services import FAVOURITE, OPTIONS, OUTCOME, PORTS, SEEN, SETUPS, SSH_IN
from paceline.domains.cyber.tables import (
    ACTIVITY,
    ATTACKED,
    BELIEVED,
    BITS,
    BLUE_COST,
    BLUE_HOST,
    CHANGE,
    COST,
    DECOY_PLACED,
    ESCALATE,
    EXPLOIT,
    EXPLOITING,
    FINDS,
    FOOTHOLD,
    FULL,
    HELD,
    IMPACT,
    LEVEL,
    NTH_OPTION,
    OT_COST,
    OTHER_OPTIONS,
    PRIVILEGED,
    QUIET,
    RAISE,
    RESTORES_OT,
    SCAN,
    SCANNED,
    SETUP_SHIFT,
    SUCCESS,
    TRACE,
    USER,
    WORDS,
    defended,
)
from paceline.errors import EnvError
from paceline.ops.random_bits import draws, mix

_N = len(HOSTS)
OBS_SIZE = 4 * _N

_SEEN_BELOW, _FAVOURITE_BELOW = np.uint64(SEEN * 2**32), np.uint64(FAVOURITE * 2**32)
_HALF, _8, _32, _LOW = np.uint64(2**31), np.uint64(8), np.uint64(32), np.uint64(2**32 - 1)
_BESIDES = np.full(1, 1 << 62)  # a counter that no step reaches
_COUNTERS = 3  # per step: the attacker's target and the alert; its exploit; the users
_OPERATIONAL = np.array([host.startswith("Op") for host in HOSTS])
_GREEN_HOSTS = np.array([HOSTS.index(f"User{i}") for i in range(5)] + [HOSTS.index(f"Enterprise{i}") for i in range(3)])
_ENTERPRISES = slice(HOSTS.index("Enterprise0"), HOSTS.index("Enterprise2") + 1)


class Network:
    """The state of n games: hosts, the knowledge of defenders and attackers, and random streams.

    Args:
        n: Number of games.
        scenario: Settings of all games.
    """

    def __init__(self, n: int, scenario: Scenario) -> None:
        self.n = n
        self.scenario = scenario
        self.steps = np.zeros(n, np.int64)  # in the current episode
        self._words = np.zeros((n, _N), np.int64)  # the true state, see `tables`
        self._remembered = np.zeros((n, _N), np.int64)  # the attacker's options from its scans
        self._belief = np.zeros((n, _N), np.int64)
        self._activity = np.zeros((n, _N), np.int64)
        self._ot_stopped = np.zeros(n, np.bool_)
        self._ot_safe = np.zeros(n, np.bool_)  # OTService cannot be stopped for the rest of the episode (q1)
        self._attacker: Attacker = ATTACKERS[scenario.red_agent](n)
        self._defended = defended(breaks=scenario.rules == "leaderboard-2022")
        self._appends = scenario.rules == "leaderboard-2022"
        self._seed = np.zeros(n, np.uint64)  # mixed
        self._episode = np.zeros(n, np.uint64)
        self._key = np.zeros(n, np.uint64)  # of the episode
        self._base = np.arange(n) * _N
        self._counters = np.arange(1, 3 if not scenario.green else 4)

    def seed(self, rows: GameRows, seeds: NDArray[np.uint64]) -> None:
        """Set the random streams of games. They take effect with the next `begin`."""
        self._seed[rows] = mix(seeds)
        self._episode[rows] = 0

    def begin(self, rows: GameRows) -> None:
        """Begin the next episode of these games."""
        self._episode[rows] += np.uint64(1)
        key = draws(self._seed[rows], self._episode[rows])
        self._key[rows] = key
        self._attacker.begin(rows, draws(key, np.zeros(1, np.int64)) >> _32)
        self._words[rows] = FOOTHOLD
        for array in (self._remembered, self._belief, self._activity, self._ot_stopped, self._ot_safe, self.steps):
            array[rows] = 0

    def step(self, actions: Ints) -> tuple[NDArray[np.float64], Flags]:
        """One step of every game.

        Args:
            actions: [n] the defenders' actions.

        Returns:
            [n] rewards, and whether the episode is over.

        Raises:
            EnvError: An action is out of range. No game has changed then.
        """
        if actions.view(np.uint64).max() >= ACTIONS:  # negative numbers are huge as unsigned ones
            wrong = int(np.flatnonzero((actions < 0) | (actions >= ACTIONS))[0])
            raise EnvError(f"action {actions[wrong]} of game {wrong}: must be from 0 to {ACTIONS - 1}.")
        # [n, 2 or 3] 64 random bits for each purpose
        noise = draws(self._key[:, None], (self.steps * _COUNTERS)[:, None] + self._counters)
        blue_at = self._base + BLUE_HOST.take(actions)
        placed, found = self._defend(actions, blue_at)
        green_at = self._scan_by_users(noise[:, 2]) if self.scenario.green else None
        act, host = self._attacker.choose(noise[:, 0] >> _32)
        red_at = self._base + host
        trace, success, reached = self._attack(act, host, red_at, noise)
        self._attacker.learn(success, reached)
        self._look(blue_at, green_at, red_at, host, trace, placed, found)
        self.steps += 1
        cost = (self._words & PRIVILEGED) @ COST // PRIVILEGED + BLUE_COST.take(actions) + self._ot_stopped * OT_COST
        return -cost / 10.0, self.steps >= self.scenario.max_steps

    def observe(self) -> NDArray[np.float32]:
        """[n, 52] observations: two bits of activity and two of belief per host."""
        return BITS.take(self._activity * 4 + self._belief, axis=0).reshape(self.n, OBS_SIZE)

    def true_state(self) -> NDArray[np.int8]:
        """[n, 13] the attacker's level on every host: 0 none, 1 user, 2 privileged. On User0 it is always 2."""
        return LEVEL.take(self._words & HELD)

    def ot_stopped(self) -> Flags:
        """[n] whether OTService is down."""
        return self._ot_stopped.copy()

    def draw(self, rows: GameRows) -> NDArray[np.uint64]:
        """[len(rows)] 64 random bits per game that depend on its seed and episode only, e.g. to draw a workflow."""
        return draws(self._key[rows], _BESIDES)

    def _defend(self, actions: Ints, at: Ints) -> tuple[Ints, Flags]:
        """Apply the defenders' actions; returns whether each placed a decoy and whether it found a file."""
        words, belief = self._words.ravel(), self._belief.ravel()
        change = actions * WORDS + words.take(at)
        words[at] = self._defended.take(change)
        belief[at] = BELIEVED.take(actions * 4 + belief.take(at))
        restores = RESTORES_OT.take(actions)
        self._ot_stopped &= ~restores
        if self.scenario.q1:
            self._ot_safe |= restores
        return DECOY_PLACED.take(change), FINDS.take(change)

    def _scan_by_users(self, noise: NDArray[np.uint64]) -> Ints:
        """[n] flat index of the host that a green user scans; -1 in games without a scan in this step."""
        host = _GREEN_HOSTS.take(((noise & _LOW) * _8 >> _32).view(np.int64))
        return np.where(noise >> _32 < _HALF, self._base + host, -1)

    def _attack(self, act: Ints, host: Ints, at: Ints, noise: NDArray[np.uint64]) -> tuple[Ints, Flags, Flags]:
        """Apply the attackers' acts; returns their traces, whether they succeed, and whether they reach their host."""
        words, remembered = self._words.ravel(), self._remembered.ravel()
        word, options = words.take(at), remembered.take(at)
        inside = (self._words[:, _ENTERPRISES] & HELD).any(axis=1)  # Enterprise hosts give access to operational ones
        reached = inside | ~_OPERATIONAL.take(host)
        setup = host * SETUPS + (word >> SETUP_SHIFT)

        # For exploits: the chosen option, its outcome, and whether it raises an alert.
        others = OTHER_OPTIONS.take(options)
        nth = ((noise[:, 1] & _LOW) * others >> _32).view(np.int64)
        first = (noise[:, 1] >> _32 < _FAVOURITE_BELOW) | (others == 0)
        exploit = NTH_OPTION.take(options * 8 + np.where(first, 0, 1 + nth))
        outcome = OUTCOME.take(setup * 8 + exploit)
        outcome *= (act == EXPLOIT) & reached & (options != 0)
        result = outcome * 2 + ((noise[:, 0] & _LOW) < _SEEN_BELOW)
        change, trace = CHANGE.take(result), TRACE.take(result)

        np.copyto(change, RAISE, where=act == ESCALATE)
        words[at] = ATTACKED.take(change * WORDS + word)

        scans = (act == SCAN) & reached
        np.copyto(trace, SCANNED, where=scans)
        shown = OPTIONS.take(setup)
        remembered[at] = np.where(scans, shown | options if self._appends else shown, options)

        success = SUCCESS.take(act * 8 + (word & HELD != 0) * 4 + reached * 2 + (outcome >= SSH_IN))
        self._ot_stopped |= (act == IMPACT) & success & ~self._ot_safe
        return trace, success, reached

    def _look(
        self, blue_at: Ints, green_at: Ints | None, red_at: Ints, host: Ints, trace: Ints, placed: Ints, found: Flags
    ) -> None:
        """Update activity and belief, which the defenders observe, with the traces of this step."""
        words, belief, activity = self._words.ravel(), self._belief.ravel(), self._activity.ravel()
        activity.fill(0)
        green: Ints | int = 0
        if green_at is not None:
            scanned = green_at >= 0
            at = green_at[scanned]
            ports = PORTS.take(at % _N * SETUPS + (words.take(at) >> SETUP_SHIFT))
            activity[at] = ACTIVITY[ports, 1, QUIET, placed[scanned] * (blue_at[scanned] == at)]
            green = (green_at == red_at).astype(np.int64)
        ports = PORTS.take(host * SETUPS + (words.take(red_at) >> SETUP_SHIFT))
        shown = ACTIVITY.take(((ports * 2 + green) * 6 + trace) * 2 + placed * (blue_at == red_at))
        activity[red_at] = shown
        belief[red_at] = np.where(shown == EXPLOITING, USER, belief.take(red_at))
        belief[blue_at] = np.where(found, FULL, belief.take(blue_at))
