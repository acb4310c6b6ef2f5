"""Compliance and the alignment reward against a slow reference, env by env."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.domains.cyber.playing import action_name

from paceline.domains.cyber.actions import ACTIONS, HOSTS, TYPES
from paceline.domains.cyber.workflow import (
    WORKFLOWS,
    Alignment,
    Compliance,
    Definition,
    one_hot,
    orders_of,
    places_of,
    read_workflow,
    workflow_name,
)
from paceline.envs.shaping import Transition
from paceline.errors import ConfigError

USER_NOTE = "op_server,enterprise,op_host,defender,user"
ACTION = {action_name(i): i for i in range(ACTIONS)}


def type_of(host: str) -> str:
    return host.rstrip("01234").lower()


class Slow:
    """Reference for one env, with names instead of numbers."""

    def __init__(self, workflow: list[str], definition: Definition, value: float) -> None:
        self.workflow, self.definition, self.value = workflow, definition, value
        self.fixed: list[str] = []
        self.compliant = 0
        self.paid = 0.0

    def step(self, action: int, held: list[str], *, last: bool) -> float:
        kind, _, host = action_name(action).partition(" ")
        if kind in ("Remove", "Restore"):
            own = type_of(host)
            more_urgent = self.workflow[: self.workflow.index(own)]
            if self.definition == "ordered":
                good = all(other in self.fixed for other in more_urgent)
            else:
                types = {type_of(name) for name in held if name != "User0"}
                good = not types or (own in types and not types & set(more_urgent))
            self.compliant += good
            self.fixed.append(own)
        worth = self.value * self.compliance
        earned, self.paid = worth - self.paid, worth
        return earned - (0.2 * self.value if last and not self.fixed else 0.0)

    @property
    def compliance(self) -> float:
        return self.compliant / len(self.fixed) if self.fixed else 0.0


def transition(
    obs: NDArray[Any], action: NDArray[Any], held: NDArray[Any], ended: NDArray[np.bool_], valid: NDArray[np.bool_]
) -> Transition:
    nothing = np.zeros(len(action))
    state = {"true_state": held}
    return Transition(state, {"obs": obs}, action, nothing.astype(np.float32), nothing > 0, ended, valid, state)


@pytest.mark.parametrize("definition", ["ordered", "state"])
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5), fixes=st.floats(0.0, 1.0))
def test_the_alignment_reward_is_that_of_a_slow_reference(
    definition: Definition, seed: int, n: int, fixes: float
) -> None:
    rng = np.random.default_rng(seed)
    value = float(rng.choice([30.0, 7.5]))
    shaper = Alignment(n, compliance=definition, alignment_lambda=value)
    fix_actions = np.array([*range(15, 28), *range(132, 145)])
    orders = WORKFLOWS[rng.integers(120, size=n)]
    slow: list[Slow] = []
    ended = np.ones(n, np.bool_)
    for _ in range(30):
        begun = np.flatnonzero(ended)
        orders[begun] = WORKFLOWS[rng.integers(120, size=len(begun))]
        shaper.begin(begun, {})
        slow = [Slow(workflow_name(orders[i]).split(","), definition, value) if ended[i] else slow[i] for i in range(n)]
        obs = np.concatenate([rng.random((n, 52), np.float32), one_hot(orders)], 1)
        action = np.where(rng.random(n) < fixes, rng.choice(fix_actions, n), rng.integers(ACTIONS, size=n))
        held = (rng.random((n, 13)) < rng.choice([0.0, 0.05, 0.5])) * rng.integers(1, 3, (n, 13))
        held[:, HOSTS.index("User0")] = 2
        valid = rng.random(n) < 0.9
        ended = (rng.random(n) < 0.1) & valid
        earned = shaper(transition(obs, action, held, ended, valid))["alignment"]
        expected = [
            slow[i].step(int(action[i]), [HOSTS[h] for h in np.flatnonzero(held[i])], last=bool(ended[i]))
            if valid[i]
            else 0.0
            for i in range(n)
        ]
        np.testing.assert_allclose(earned, expected, atol=1e-4)
        measured = shaper.measure()
        np.testing.assert_allclose(measured["compliance"], [one.compliance for one in slow], atol=1e-6)
        assert measured["fixes"].tolist() == [len(one.fixed) for one in slow]


def count(definition: Definition, *steps: tuple[str, list[str]], workflow: str = USER_NOTE) -> list[int]:
    """The number of compliant fixes after each action; each action has the hosts that the attacker held before it."""
    counts = Compliance(1, definition)
    counts.follow(np.arange(1), np.array([read_workflow(workflow)]))
    found = []
    for name, hosts in steps:
        held = np.array([[host in hosts for host in HOSTS]])
        counts.step(np.array([ACTION[name]]), held, np.ones(1, np.bool_))
        found.append(int(counts.compliant[0]))
    return found


def test_ordered_requires_earlier_fixes_of_higher_priority() -> None:
    steps = ["Restore Enterprise0", "Remove Op_Server0", "Remove Enterprise2", "Restore User1", "Restore Op_Host2"]
    assert count("ordered", *((step, []) for step in steps)) == [0, 1, 2, 2, 3]
    last = ["Restore Defender", "Restore User0"]
    assert count("ordered", *((step, []) for step in [*steps, *last])) == [0, 1, 2, 2, 3, 4, 5]


def test_state_depends_on_held_hosts_except_the_foothold() -> None:
    assert count("state", ("Remove User1", ["User0"])) == [1]  # only the foothold is held, so every fix complies
    assert count("state", ("Remove User1", ["User0", "User3"])) == [1]  # the type counts, not the host
    assert count("state", ("Remove User1", ["User1", "Enterprise0"])) == [0]
    assert count("state", ("Remove Enterprise2", ["User1", "Enterprise0"])) == [1]
    assert count("state", ("Remove Op_Server0", ["User1"])) == [0]  # highest priority, but not held by the attacker


def test_other_actions_are_not_counted_as_fixes() -> None:
    counts = Compliance(1)
    for name in ("Sleep", "Monitor", "Analyse Op_Server0", "DecoyApache Op_Server0"):
        counts.step(np.array([ACTION[name]]), None, np.ones(1, np.bool_))
    assert counts.fixes[0] == 0


def test_state_without_the_true_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="extra true_state"):
        Compliance(1, "state").step(np.array([ACTION["Remove User1"]]), None, np.ones(1, np.bool_))


def test_the_workflow_may_be_an_argument_instead_of_an_observation() -> None:
    shaper = Alignment(2, workflow=USER_NOTE)
    shaper.begin(np.arange(2), {})
    action = np.array([ACTION["Restore Op_Server0"], ACTION["Restore User1"]])
    ended = valid = np.ones(2, np.bool_)
    earned = shaper(transition(np.zeros((2, 52)), action, np.zeros((2, 13)), ended, valid))
    assert earned["alignment"].tolist() == [30.0, 0.0]


def test_orders_are_read_and_written() -> None:
    order = read_workflow(USER_NOTE)
    assert [TYPES[kind] for kind in order] == USER_NOTE.split(",")
    assert workflow_name(order) == USER_NOTE == workflow_name(read_workflow(USER_NOTE.split(",")))
    assert len(WORKFLOWS) == len({tuple(each) for each in WORKFLOWS.tolist()}) == 120
    encoded = one_hot(WORKFLOWS)
    assert encoded.shape == (120, 25)
    assert encoded.reshape(120, 5, 5).sum(1).min() == encoded.reshape(120, 5, 5).sum(2).max() == 1
    assert orders_of(encoded).tolist() == WORKFLOWS.tolist()
    assert np.take_along_axis(places_of(WORKFLOWS), WORKFLOWS, 1).tolist() == [[0, 1, 2, 3, 4]] * 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op_server,enterprise,op_host,defender,users", "'users' is not a host type. Did you mean 'user'"),
        ("op_server,enterprise", "must name each of the 5 types once"),
        ("user,user,enterprise,op_host,defender", "must name each of the 5 types once"),
    ],
)
def test_a_bad_workflow_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_workflow(text)


def test_a_bad_definition_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'ordered'"):
        Alignment(1, compliance="order")  # type: ignore[arg-type]
