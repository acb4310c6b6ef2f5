"""Workflows: orders of priority in which a defender takes hosts back, their compliance, and the alignment reward.

    workflow    an order of the five host types, highest priority first: op_server,enterprise,op_host,defender,user
    fix         a Remove or Restore action on any host
    compliance  compliant fixes / fixes in one episode; 0 for an episode without a fix

There are two definitions of a compliant fix:

    ordered     every type of higher priority has been fixed earlier in the episode
    state       the attacker holds a host of this type and none of a higher priority, or holds no host at all

"Holds" refers to the true state before the step. User0 is left out, because the attacker's foothold there is permanent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from paceline.domains.cyber.actions import ACTION_HOST, HOST_TYPE, HOSTS, IS_FIX, TYPES
from paceline.envs.shaping import Transition
from paceline.errors import ConfigError, check_range, nearest
from paceline.spec import PLAIN

Definition: TypeAlias = Literal["ordered", "state"]

PLACES = len(TYPES)
ORDER_SIZE = PLACES * PLACES
"""Length of the one-hot code of an order, which is appended to observations."""
WITHOUT_A_FIX = 0.2
"""Penalty of an episode without a fix, as a fraction of lambda."""
FOOTHOLD = HOSTS.index("User0")

_NO_PRIORITY = PLACES
"""Priority of a host that needs no fix: ranks after every host type."""
_ACTION_TYPE = np.where(ACTION_HOST < 0, 0, HOST_TYPE[ACTION_HOST])  # [145]; unused for Sleep and Monitor

WORKFLOWS: NDArray[np.int64] = np.array(list(permutations(range(PLACES))), np.int64)
"""[120, 5] all orders."""
WORKFLOWS.flags.writeable = False


def read_workflow(text: str | Sequence[str]) -> tuple[int, ...]:
    """Parse a workflow such as `op_server,enterprise,op_host,defender,user` into indices into `TYPES`.

    Raises:
        ConfigError: A name is unknown, or a type is missing or given twice.
    """
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else list(text)
    for name in names:
        if name not in TYPES:
            raise ConfigError(f"workflow: {name!r} is not a host type. {nearest(str(name), TYPES)}")
    if sorted(names) != sorted(TYPES):
        raise ConfigError(
            f"workflow={','.join(names)!r}: must name each of the {PLACES} types once ({', '.join(TYPES)}). "
            "The type with the highest priority comes first."
        )
    return tuple(TYPES.index(name) for name in names)


def workflow_name(order: Sequence[int] | NDArray[np.int64]) -> str:
    """An order as comma-separated text, the inverse of `read_workflow`."""
    return ",".join(TYPES[int(kind)] for kind in order)


def places_of(orders: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n, 5] the place of each type in each of the orders [n, 5]; 0 is the highest priority."""
    return np.argsort(orders, axis=-1)


def one_hot(orders: NDArray[np.int64]) -> NDArray[np.float32]:
    """[n, 25] one-hot code of the orders [n, 5]: for each place, the type at it."""
    return np.eye(PLACES, dtype=np.float32)[orders].reshape(*orders.shape[:-1], ORDER_SIZE)


def orders_of(encoded: NDArray[Any]) -> NDArray[np.int64]:
    """[n, 5] the orders of codes [n, 25], the inverse of `one_hot`."""
    orders: NDArray[np.int64] = encoded.reshape(*encoded.shape[:-1], PLACES, PLACES).argmax(-1)
    return orders


class Compliance:
    """Counts fixes and compliant fixes in the current episodes of n envs.

    Args:
        n: Number of envs.
        definition: Definition of a compliant fix.
    """

    def __init__(self, n: int, definition: Definition = "ordered") -> None:
        if definition not in get_args(Definition):
            raise ConfigError(f"compliance={definition!r}: unknown. {nearest(definition, get_args(Definition))}")
        self.definition: Definition = definition
        self.fixes = np.zeros(n, np.int64)
        self.compliant = np.zeros(n, np.int64)
        self._places = np.zeros((n, PLACES), np.uint8)
        self._host_places = np.full((n, len(HOSTS)), _NO_PRIORITY, np.uint8)
        self._fixed = np.zeros(n, np.uint8)  # bit p: the type at place p has been fixed

    def begin(self, envs: NDArray[np.int64]) -> None:
        """Reset the counts of envs that begin an episode."""
        self.fixes[envs] = 0
        self.compliant[envs] = 0
        self._fixed[envs] = 0

    def follow(self, envs: NDArray[np.int64], orders: NDArray[np.int64]) -> None:
        """Set the orders [len(envs), 5] of these envs."""
        places = places_of(orders)
        self._places[envs] = places
        places = places[:, HOST_TYPE]
        places[:, FOOTHOLD] = _NO_PRIORITY
        self._host_places[envs] = places

    def step(self, action: NDArray[Any], held: NDArray[Any] | None, valid: NDArray[np.bool_]) -> None:
        """Count the fixes of one step.

        Args:
            action: [n] actions of the step.
            held: [n, 13] nonzero for hosts that the attacker held before the step. Ignored by `ordered`.
            valid: [n] False for envs that took no step.
        """
        rows = np.flatnonzero(IS_FIX[action] & valid)
        if not len(rows):
            return
        place = self._places[rows, _ACTION_TYPE[action[rows]]]
        if self.definition == "ordered":
            bit = np.left_shift(1, place, dtype=np.uint8)
            before = bit - np.uint8(1)
            good = self._fixed[rows] & before == before
            self._fixed[rows] |= bit
        else:
            if held is None:
                raise ConfigError("compliance='state': needs the env's extra true_state (none given). Use 'ordered'.")
            highest = np.where(held[rows] != 0, self._host_places[rows], np.uint8(_NO_PRIORITY)).min(1)
            good = (highest == _NO_PRIORITY) | (highest == place)
        self.fixes[rows] += 1
        self.compliant[rows] += good

    def share(self) -> NDArray[np.float32]:
        """[n] compliance of the current episodes so far."""
        return (self.compliant / np.maximum(self.fixes, 1)).astype(np.float32)


class Alignment:
    """Reward shaper that rewards compliance with a workflow.

    Each step is rewarded with the change of lambda * compliance. An episode without a fix is penalised with
    0.2 * lambda at its end, because doing nothing would be optimal otherwise. The total of an episode is therefore
    lambda * compliance, or -0.2 * lambda.

    Args:
        n: Number of envs.
        workflow: The order of priority. Default: each env's own, from the last 25 numbers of its observation.
        compliance: Definition of a compliant fix.
        alignment_lambda: Reward of a compliance of 1 (lambda).
        held: Name of the env's extra [13] that is nonzero for hosts that the attacker holds.
    """

    parts = ("alignment",)
    measures = ("compliance", "fixes")

    def __init__(
        self,
        n: int,
        *,
        workflow: str | Sequence[str] | None = None,
        compliance: Definition = "ordered",
        alignment_lambda: float = 30.0,
        held: str = "true_state",
    ) -> None:
        check_range("alignment_lambda", alignment_lambda, "Use 0 for no alignment reward.", at_least=0)
        self._counts = Compliance(n, compliance)
        self._lambda, self._held = np.float32(alignment_lambda), held
        self._share = np.zeros(n, np.float32)
        self._score = np.zeros(n, np.float32)
        self._from_obs = workflow is None
        self._new = np.zeros(n, np.bool_)  # envs whose order has not been read yet
        if workflow is not None:
            self._counts.follow(np.arange(n), np.tile(read_workflow(workflow), (n, 1)))

    def begin(self, envs: NDArray[np.int64], extras: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Reset envs that begin an episode."""
        self._counts.begin(envs)
        self._score[envs] = 0.0
        self._new[envs] = self._from_obs

    def __call__(self, step: Transition) -> Mapping[str, NDArray[np.float32]]:
        """The alignment reward [n] of one step."""
        if self._new.any():
            rows = np.flatnonzero(self._new & step.valid)
            self._counts.follow(rows, orders_of(step.obs[PLAIN][rows, -ORDER_SIZE:]))
            self._new[rows] = False
        counts = self._counts
        counts.step(step.action, step.extras.get(self._held), step.valid)
        self._share = counts.share()
        score = self._lambda * self._share
        bonus = score - self._score
        self._score = score
        ended = (step.terminated | step.truncated) & step.valid
        if ended.any():
            bonus[ended & (counts.fixes == 0)] -= np.float32(WITHOUT_A_FIX) * self._lambda
        return {"alignment": bonus}

    def measure(self) -> Mapping[str, NDArray[np.float32]]:
        """Compliance and fixes of the current episodes, after the last step."""
        return {"compliance": self._share, "fixes": self._counts.fixes.astype(np.float32)}
