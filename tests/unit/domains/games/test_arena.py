from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline import PPO, cli
from paceline.domains.games import arena

TIC_TAC_TOE = "paceline/TicTacToe-v0"


def saved(path: Path, env: str = TIC_TAC_TOE, seed: int = 0) -> str:
    PPO(env, num_workers=0, n_envs=4, hidden_sizes=(8,), seed=seed).save(path)
    return str(path)


def test_scripted_players_need_the_game_and_random_has_rating_0(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "out.csv"
    words = ["random", "minimax", "greedy", "--game", TIC_TAC_TOE, "--games", "200", "--csv", str(file)]
    assert cli.main(["arena", *words]) == 0
    title, pairs, ratings = [
        [line.split("\t") for line in block.splitlines()] for block in capsys.readouterr().out.split("\n\n")
    ]
    assert title == [["tic_tac_toe: 200 games per match"]]
    assert pairs[0] == list(arena.PAIRS)
    assert [row[:2] for row in pairs[1:]] == [["random", "minimax"], ["random", "greedy"], ["minimax", "greedy"]]
    assert all(sum(map(int, row[2:5])) == 200 for row in pairs[1:])
    assert pairs[1][2] == "0"  # minimax never loses
    assert pairs[1][5:] == ["0.0%", "0.0% to 1.9%"]
    assert ratings[0] == list(arena.RATINGS)
    assert [row[0] for row in ratings[1:]] == ["minimax", "greedy", "random"]
    assert ratings[3][1:3] == ["0", "fixed"]
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert (tuple(rows[0]), len(rows)) == (arena.CSV, 3)
    assert (rows[0]["games"], rows[0]["wins"], rows[0]["player_elo"]) == ("200", "0", "0")
    assert float(rows[2]["player_elo"]) > float(rows[2]["opponent_elo"]) > 0


def test_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("3", "3", "4"):
        assert cli.main(["arena", "random", "greedy", "--game", TIC_TAC_TOE, "--games", "100", "--seed", seed]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_the_game_comes_from_the_runs_and_agents_do_not_repeat_one_game(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second = saved(tmp_path / "a"), saved(tmp_path / "b", seed=1)
    assert cli.main(["arena", first, second, "--games", "100"]) == 0
    assert "tic_tac_toe: 100 games per match, each starting with 2 random moves" in capsys.readouterr().out
    assert cli.main(["arena", first, second, "--games", "100", "--opening", "0"]) == 0
    said = capsys.readouterr().out
    assert "begun with" not in said
    counts = [int(cell) for cell in said.splitlines()[3].split("\t")[2:5]]
    assert all(count in (0, 50, 100) for count in counts)  # one game for each seat
    assert cli.main(["arena", first, second, "--games", "100", "--stochastic"]) == 0
    said = capsys.readouterr().out
    assert "begun with" not in said
    assert not all(int(cell) in (0, 50, 100) for cell in said.splitlines()[3].split("\t")[2:5])


def test_without_random_the_mean_is_zero(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["arena", saved(tmp_path / "a"), "greedy", "--games", "50"]) == 0
    ratings = [line.split("\t") for line in capsys.readouterr().out.split("\n\n")[2].splitlines()[1:]]
    assert int(ratings[0][1]) == -int(ratings[1][1]) > 0
    assert all(row[2].startswith("± ") for row in ratings)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "arena: needs at least two players, not 0. Example: `paceline arena runs/A random`"),
        (["random"], "arena: needs at least two players, not 1."),
        (["random", "random"], "arena: a player is given twice"),
        (["random", "greedy"], "game: required"),
        (["random", "gredy", "--game", TIC_TAC_TOE], "player 'gredy': neither a path nor the name of a player"),
        (["random", "heuristic", "--game", TIC_TAC_TOE], "player 'heuristic': cannot play tic_tac_toe"),
        (["random", "greedy", "--game", "paceline/Chess-v0"], "game 'paceline/Chess-v0': unknown."),
        (["random", "greedy", "--game", TIC_TAC_TOE, "--games", "7"], "games=7: must be even"),
        (["random", "greedy", "--game", TIC_TAC_TOE, "--games", "0"], "games=0: must be at least 2"),
        (["random", "greedy", "--games", "some"], "games='some': must be an integer"),
        (["random", "greedy", "--seed", "-1"], "seed=-1: must be at least 0"),
        (["random", "heuristic", "--game", "ludo", "--opening", "2"], "opening=2: ludo has dice"),
        (["random", "greedy", "--opening", "-1"], "opening=-1: must be at least 0"),
        (["random", "greedy", "--gmae", "x"], "arena --gmae: not expected. Did you mean '--game'?"),
    ],
)
def test_bad_arguments_exit_with_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["arena", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_of_another_game_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a")
    assert cli.main(["arena", path, "random", "--game", "paceline/Ludo-v0"]) == 2
    assert f"{path}: was trained on tic_tac_toe and cannot play ludo" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    words: list[Any] = ["random", "greedy", "--game", TIC_TAC_TOE, "--games", "2", "--csv", f"{tmp_path}/file/x.csv"]
    assert cli.main(["arena", *words]) == 2
    assert "must be writable" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["arena", "x", "--seed", "-1"], ["play", "x", "--seed", "-1"], ["train-many"]])
def test_bad_arguments_do_not_load_torch(words: list[str], tmp_path: Path) -> None:
    code = f"import sys; from paceline import cli; cli.main({words!r}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, check=False, capture_output=True)
    assert done.returncode == 0
