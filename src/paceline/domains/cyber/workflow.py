"""Workflows: in which order a defender takes hosts back, how well it kept to that, and what this is worth to it.

    workflow    an order of the five host types, the most urgent first: op_server,enterprise,op_host,defender,user
    fix         a Remove or a Restore, of whatever host
    compliance  compliant fixes / fixes, in one episode; nothing fixed is 0

A fix is compliant in the sense of

    ordered     if every more urgent type has been fixed before, in this episode
    state       if no more urgent type is held by the attacker, and its own is, or if the attacker holds nothing

What the attacker holds is the true state before the step: what the action answers to. User0 does not count, where the
attacker has a foothold for ever.
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
Order: TypeAlias = tuple[int, ...]
"""Indices into `TYPES`, the most urgent first."""

PLACES = len(TYPES)
ORDER_SIZE = PLACES * PLACES
"""Numbers that an order adds to an observation."""
WITHOUT_A_FIX = 0.2
"""What an episode without a fix costs, as a share of lambda."""
FOOTHOLD = HOSTS.index("User0")

_NOBODY = PLACES
"""Priority of a host that needs no fix: ranks after every host type."""
_ACTION_TYPE = np.where(ACTION_HOST < 0, 0, HOST_TYPE[ACTION_HOST])  # [145]; of Sleep and Monitor: any

WORKFLOWS: NDArray[np.int64] = np.array(list(permutations(range(PLACES))), np.int64)
"""[120, 5] all orders."""
WORKFLOWS.flags.writeable = False


def read_workflow(text: str | Sequence[str]) -> Order:
    """The order that `op_server,enterprise,op_host,defender,user` names.

    Raises:
        ConfigError: A name is unknown, or a type is missing or named twice.
    """
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else list(text)
    for name in names:
        if name not in TYPES:
            raise ConfigError(f"workflow: {name!r} is not a host type. {nearest(str(name), TYPES)}")
    if sorted(names) != sorted(TYPES):
        raise ConfigError(
            f"workflow={','.join(names)!r}: must name each of the {PLACES} types once ({', '.join(TYPES)}). "
            "The most urgent comes first."
        )
    return tuple(TYPES.index(name) for name in names)


def workflow_name(order: Sequence[int] | NDArray[np.int64]) -> str:
    """An order as it is written."""
    return ",".join(TYPES[int(kind)] for kind in order)


def places_of(orders: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n, 5] the place of each type in each of the orders [n, 5]; 0 is the most urgent."""
    return np.argsort(orders, axis=-1)


def one_hot(orders: NDArray[np.int64]) -> NDArray[np.float32]:
    """[n, 25] of the orders [n, 5]: for each place, which type has it."""
    return np.eye(PLACES, dtype=np.float32)[orders].reshape(*orders.shape[:-1], ORDER_SIZE)


def orders_of(encoded: NDArray[Any]) -> NDArray[np.int64]:
    """[n, 5] the orders that `one_hot` wrote as [n, 25]."""
    orders: NDArray[np.int64] = encoded.reshape(*encoded.shape[:-1], PLACES, PLACES).argmax(-1)
    return orders


class Compliance:
    """Counts fixes, and compliant ones, of n envs in their episodes.

    Args:
        n: Envs.
        definition: Which fixes are compliant.
    """

    def __init__(self, n: int, definition: Definition = "ordered") -> None:
        if definition not in get_args(Definition):
            raise ConfigError(f"compliance={definition!r}: unknown. {nearest(definition, get_args(Definition))}")
        self.definition: Definition = definition
        self.fixes = np.zeros(n, np.int64)
        self.compliant = np.zeros(n, np.int64)
        self._places = np.zeros((n, PLACES), np.uint8)
        self._host_places = np.full((n, len(HOSTS)), _NOBODY, np.uint8)
        self._fixed = np.zeros(n, np.uint8)  # bit p: the type at place p has been fixed

    def begin(self, envs: NDArray[np.int64]) -> None:
        """These envs begin an episode."""
        self.fixes[envs] = 0
        self.compliant[envs] = 0
        self._fixed[envs] = 0

    def follow(self, envs: NDArray[np.int64], orders: NDArray[np.int64]) -> None:
        """These envs are to keep to these orders [len(envs), 5]."""
        places = places_of(orders)
        self._places[envs] = places
        places = places[:, HOST_TYPE]
        places[:, FOOTHOLD] = _NOBODY
        self._host_places[envs] = places

    def step(self, action: NDArray[Any], held: NDArray[Any] | None, valid: NDArray[np.bool_]) -> None:
        """Take in what was done.

        Args:
            action: [n]
            held: [n, 13] what the attacker held before, not zero where it did. Of no matter to `ordered`.
            valid: [n] False: nothing was done.
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
                raise ConfigError("compliance='state': needs what the attacker holds (nothing given). Use 'ordered'.")
            most_urgent = np.where(held[rows] != 0, self._host_places[rows], np.uint8(_NOBODY)).min(1)
            good = (most_urgent == _NOBODY) | (most_urgent == place)
        self.fixes[rows] += 1
        self.compliant[rows] += good

    def share(self) -> NDArray[np.float32]:
        """[n] compliance of the episodes so far."""
        return (self.compliant / np.maximum(self.fixes, 1)).astype(np.float32)


class Alignment:
    """A `RewardShaper` that pays for keeping to a workflow.

    The score is lambda x compliance, and each step earns its change. An episode without a fix costs 0.2 lambda at its
    end, or else it would be best to do nothing. So an episode's bonus is lambda x its compliance, or -0.2 lambda.

    Args:
        n: Envs.
        workflow: The order to keep to; where it is left out, the last 25 numbers of an observation say it.
        compliance: Which fixes are compliant.
        alignment_lambda: What a compliance of 1 is worth.
        held: The extra that says what the attacker holds, [13], not zero where it does.
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
        self._told = workflow is None
        self._new = np.zeros(n, np.bool_)  # envs whose order has not been read yet
        if workflow is not None:
            self._counts.follow(np.arange(n), np.tile(read_workflow(workflow), (n, 1)))

    def begin(self, envs: NDArray[np.int64], extras: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Episodes begin."""
        self._counts.begin(envs)
        self._score[envs] = 0.0
        self._new[envs] = self._told

    def __call__(self, step: Transition) -> Mapping[str, NDArray[np.float32]]:
        """What this step earned."""
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
        """Compliance and fixes of the episodes, as they stood after the last step."""
        return {"compliance": self._share, "fixes": self._counts.fixes.astype(np.float32)}
