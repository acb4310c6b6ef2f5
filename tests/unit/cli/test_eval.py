from __future__ import annotations

from pathlib import Path

import pytest

from paceline import A3C, APPO, DQN, IMPALA, PPO, cli
from paceline.config.keywords import PPOKeywords
from paceline.train.agent import Agent


@pytest.fixture
def model(tmp_path: Path) -> str:
    settings: PPOKeywords = {"num_workers": 0, "n_envs": 4, "n_steps": 16, "hidden_sizes": (8,)}
    PPO("tests.screens:Screen", **settings).save(tmp_path / "model")
    return str(tmp_path / "model")


def test_it_prints_return_and_length(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    video = tmp_path / "x.gif"
    assert cli.main(["eval", model, "--episodes", "3", "--seed", "4", "--stochastic", "--video", str(video)]) == 0
    said = capsys.readouterr().out
    for part in ("tests.screens:Screen: ", model, "length 10.0, 3 episodes, sampled actions", "2 s of 3 episodes"):
        assert part in said
    assert video.read_bytes().startswith(b"GIF89a")


def test_ten_episodes_of_most_probable_actions_unless_told(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", model]) == 0
    assert "10 episodes, most probable actions" in capsys.readouterr().out


@pytest.mark.parametrize("agent", [A3C, APPO, DQN, IMPALA, PPO])
def test_agents_of_every_algorithm_can_be_played(
    agent: type[Agent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent("tests.screens:Screen", num_workers=0, n_envs=4, n_steps=16, hidden_sizes=(8,)).save(tmp_path / "model")
    assert cli.main(["eval", str(tmp_path / "model"), "--episodes", "2"]) == 0
    assert "2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--episodes", "0"], 2, "episodes=0: must be at least 1"),
        (["--episodes", "some"], 2, "episodes='some'"),
        (["--seed", "-1"], 2, "seed=-1: must be at least 0"),
        (["--vidoe", "x.gif"], 2, "eval --vidoe: not expected. Did you mean '--video'?"),
        (["--video", "x.avi"], 2, "must end with .gif or .mp4"),
    ],
)
def test_bad_arguments_exit_with_2(
    model: str, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["eval", model, *words]) == code
    assert said in capsys.readouterr().err


def test_a_run_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", str(tmp_path / "nowhere")]) == 1
    assert "no such folder" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        cli.main(["eval"])
    assert left.value.code == 2
