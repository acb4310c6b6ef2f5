"""`paceline check` names the part that failed."""

from __future__ import annotations

import pytest

from paceline.cli import check as command
from paceline.insight import selftest


def test_success_is_reported_on_the_last_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "parts", lambda *_: iter([("one", lambda: "fine")]))
    assert command.run([]) == 0
    assert "ALL TESTS PASSED" in capsys.readouterr().out


def test_hints_follow_the_line_of_their_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "parts", lambda *_: iter([("one", lambda: "fine\nhint     time limit: look")]))
    assert command.run([]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("ok      one: fine (")
    assert second == "hint     time limit: look"


def test_the_failing_part_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise RuntimeError("no luck")

    monkeypatch.setattr(selftest, "parts", lambda *_: iter([("two", broken), ("three", lambda: "never")]))
    assert command.run([]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: two" in shown
    assert "no luck" in shown
    assert "three" not in shown


def test_an_unknown_env_is_said_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        selftest, "parts", lambda env, kwargs: iter([("environment", lambda: selftest._environment(env, kwargs))])
    )
    assert command.run(["--env", "CartPol-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().out
