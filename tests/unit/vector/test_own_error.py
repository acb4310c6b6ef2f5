"""Which exception a failed step raises: the env's own one, or Paceline's."""

from __future__ import annotations

import traceback

import pytest

from paceline.errors import ConfigError, EnvError, WorkerDied, WorkerError
from paceline.vector.own_error import own_error


def caused_by(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("kind", [EnvError, WorkerError])
def test_the_exception_of_an_env_names_the_env_in_a_note(kind: type[Exception]) -> None:
    own = KeyError("no such host")
    error = caused_by(kind("env 2 raised in step 3\n\nIts traceback: ..."), own)
    assert own_error(error) is own
    assert own.__notes__ == ["env 2 raised in step 3"]
    with pytest.raises(KeyError) as caught:
        raise own from error
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("direct cause") == 1
    assert text.rstrip().endswith("env 2 raised in step 3")


@pytest.mark.parametrize(
    "error",
    [
        WorkerDied("killed"),
        EnvError("no cause"),
        caused_by(WorkerError("env 0 in step 1: wrong shape"), EnvError("wrong shape")),
        caused_by(ConfigError("wrong"), KeyError()),
        KeyboardInterrupt(),
    ],
)
def test_other_failures_are_raised_as_they_are(error: BaseException) -> None:
    assert own_error(error) is None
