"""What each of several signals does, by what the training does at that moment."""

from __future__ import annotations

import signal

import pytest

from paceline.train.stopping import Interruptible, StopNow, Stopper

INT, TERM = signal.SIGINT, signal.SIGTERM


class Session:
    """A stopper, and what it has asked for and said."""

    def __init__(self) -> None:
        self.interruptible = Interruptible()
        self.reasons: list[str] = []
        self.said: list[str] = []
        self.stopper = Stopper(self.reasons.append, self.said.append, self.interruptible)


def test_the_first_signal_in_a_rollout_says_what_a_second_one_loses_and_the_second_cuts_it_off() -> None:
    session = Session()
    with session.interruptible.during("rollout"):
        session.stopper(INT)
    assert session.reasons == ["SIGINT"]
    assert session.said.pop() == (
        "Ctrl-C: stopping after this rollout. Ctrl-C again stops now: that loses the steps of this rollout, and "
        "nothing of earlier ones"
    )
    with pytest.raises(StopNow), session.interruptible.during("rollout"):
        session.stopper(INT)
    assert session.said == ["Ctrl-C: stopping now, with the state of the last update"]
    assert session.interruptible.waiting is None


def test_an_update_and_a_save_are_finished_unless_a_third_signal_insists() -> None:
    session = Session()
    session.stopper(TERM)
    assert session.said.pop() == "SIGTERM: stopping after this update"
    session.stopper(TERM)
    assert session.said.pop().startswith("SIGTERM: stopping as soon as the update or checkpoint under way is complete.")
    with pytest.raises(KeyboardInterrupt) as caught:
        session.stopper(TERM)
    assert caught.type is KeyboardInterrupt


def test_a_save_that_follows_a_cut_off_is_not_cut_off() -> None:
    session = Session()
    session.stopper(INT)
    with pytest.raises(StopNow), session.interruptible.during("rollout"):
        session.stopper(INT)
    session.stopper(INT)
    assert session.said[-1].startswith("Ctrl-C: stopping as soon as the update or checkpoint under way is complete.")


def test_the_first_signal_cuts_off_an_evaluation() -> None:
    session = Session()
    with pytest.raises(StopNow), session.interruptible.during("evaluation"):
        session.stopper(INT)
    assert (session.reasons, session.said) == (["SIGINT"], ["Ctrl-C: stopping; the evaluation is cut off"])


def test_an_env_that_catches_every_exception_does_not_keep_the_run() -> None:
    assert not issubclass(StopNow, Exception)
