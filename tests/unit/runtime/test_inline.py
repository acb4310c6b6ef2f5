"""The runtime without workers."""

from __future__ import annotations

import pytest
from tests.contract.runtimes import running
from tests.jobs import Recorder, TextlessError

from paceline.envs.fault import OddError
from paceline.errors import EnvError
from paceline.runtime.protocol import run_all


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", ValueError),
        ("odd", OddError),
        ("env", EnvError),
        ("textless", TextlessError),
        ("sys_exit", SystemExit),
    ],
)
def test_inline_an_error_is_the_error_itself(how: str, error: type[BaseException]) -> None:
    with running("inline") as it:
        with pytest.raises(error):
            run_all(it.runtime, Recorder.fail, 0, how)
        assert run_all(it.runtime, Recorder.fail, 1, how) == [None]
