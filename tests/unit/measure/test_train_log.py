from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.measure.folder import RunFolder
from paceline.measure.train_log import TrainLog, being_written


def said(path: Path) -> list[str]:
    """The lines without their times of day."""
    return [line.split(maxsplit=2)[2] for line in path.read_text().splitlines()]


def test_the_log_has_messages_of_the_run_and_warnings_of_loggers(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    logger = logging.getLogger("paceline.envs.group")
    with closing(TrainLog(path)) as log:
        log.say("a line with 100 % and [brackets]")
        logger.warning("env %d is odd", 3)
        logger.info("not asked for")
        log.say("bad", logging.ERROR)
    logger.warning("after the end")
    assert said(path) == ["INFO    a line with 100 % and [brackets]", "WARNING env 3 is odd", "ERROR   bad"]


def test_a_log_is_truncated_unless_append_is_set(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    for append, expected in ((False, ["one"]), (True, ["one", "one"]), (False, ["one"])):
        with closing(TrainLog(path, append=append)) as log:
            log.say("one")
        assert [line.split()[-1] for line in said(path)] == expected


def test_lines_are_written_at_once(tmp_path: Path) -> None:
    with closing(TrainLog(tmp_path / "train.log")) as log:
        log.say("now")
        assert said(tmp_path / "train.log") == ["INFO    now"]


def test_a_full_disk_costs_lines_and_not_the_run() -> None:
    with closing(TrainLog(Path("/dev/full"), append=True)) as log:
        log.say("lost")
        log.say("x" * 100_000)


def test_is_known_as_being_written_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    assert not being_written(path)
    log = TrainLog(path)
    assert being_written(path)
    log.close()
    log.close()
    assert not being_written(path)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with closing(TrainLog(path)) as log:
        log.say("mine")
        with pytest.raises(ConfigError, match="another process is writing this run"):
            TrainLog(path)
        assert said(path) == ["INFO    mine"]
    TrainLog(path).close()


def test_a_killed_writer_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    code = (
        "import os, sys; from pathlib import Path; from paceline.measure.train_log import TrainLog, being_written\n"
        "log = TrainLog(Path(sys.argv[1])); log.say('alive'); assert being_written(Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60).returncode == -9
    assert said(path) == ["INFO    alive"]
    assert not being_written(path)


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}])
def test_the_folder_of_an_active_run_is_refused(tmp_path: Path, how: dict[str, bool]) -> None:
    where = {"env": "E", "algo": "ppo", "seed": 0}
    RunFolder.create(tmp_path / "a", **where).write("summary.json", "{}")  # type: ignore[arg-type]
    with closing(TrainLog(tmp_path / "a" / "train.log")):
        with pytest.raises(ConfigError, match="another process is writing this run"):
            RunFolder.create(tmp_path / "a", **where, **how)  # type: ignore[arg-type]
        assert (tmp_path / "a" / "summary.json").exists()
    RunFolder.create(tmp_path / "a", **where, **how)  # type: ignore[arg-type]
