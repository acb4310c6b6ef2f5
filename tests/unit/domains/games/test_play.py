from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from paceline import PPO, cli
from paceline.domains.games.net_player import load_net
from paceline.domains.games.play import COLOURS, chosen, coloured, play_game, play_games
from paceline.domains.games.players import LudoHeuristic, Minimax, RandomPlayer
from paceline.domains.games.session import Session
from paceline.envs.game import Game, Player

TIC_TAC_TOE = "paceline/TicTacToe-v0"


class Script:
    """Gives answers one after another, then Ctrl-D; records the prompts."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.left, self.prompts = list(answers), list[str]()

    def __call__(self, prompt: str = "") -> str:
        self.prompts.append(prompt)
        if not self.left:
            raise EOFError
        return self.left.pop(0)


class Lowest:
    """Always plays the first legal move."""

    def choose(self, game: Game, rows: NDArray[np.intp], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        first: NDArray[np.int64] = game.legal(rows).argmax(axis=1)
        return first


def shown(play: Callable[[Console], object], *, color: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, force_terminal=color or None)
    play(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def tic_tac_toe(player: Player | None = None, seat: int = 0, seed: int = 0) -> Session:
    return Session("tic_tac_toe", player or RandomPlayer(), seat=seat, seed=seed)


def test_a_whole_game_from_a_script() -> None:
    session, script = tic_tac_toe(Lowest()), Script(["4", "0", "3", "5", "n"])
    said = shown(lambda console: play_game(session, script, console))
    assert (session.result, script.left) == ("won", [])
    parts = (
        "You are X",
        "opponent plays cell 0",
        "Type the number",
        "opponent plays cell 1",
        "X has won",
        "You have won!",
    )
    places = [said.index(part) for part in parts]
    assert places == sorted(places)
    assert [prompt.split()[0] for prompt in script.prompts] == ["your"] * 4 + ["another"]


def test_the_first_position_shows_board_and_moves() -> None:
    said = shown(lambda console: play_game(tic_tac_toe(), Script(["q"]), console))
    assert "You are X, the opponent is O." in said
    assert "Tic-tac-toe, X to move" in said
    for cell in range(9):
        assert f"{cell}  cell {cell}" in said


def test_the_opponents_moves_are_shown_and_undone() -> None:
    session = tic_tac_toe(seat=1)
    said = shown(lambda console: play_game(session, Script(["u", "4", "U", "u", "quit"]), console))
    assert said.count("opponent plays cell ") >= 2
    assert said.count("There is nothing to take back") == 2
    assert len(session.moves()) == 8  # where it began


def test_unknown_input_gets_help() -> None:
    script = Script(["", "x", "-1", "9", "99999999999999999999", "\u00b2", "4 4", "y", "q"])
    said = shown(lambda console: play_game(tic_tac_toe(), script, console))
    assert said.count("Type the number of a move (0, 1, 2, 3, 4, 5, 6, 7, 8), or h hint, u undo, q quit.") == 8


def test_hints(tmp_path: Path) -> None:
    said = shown(lambda console: play_game(tic_tac_toe(Minimax()), Script(["h", "q"]), console))
    assert re.search(r"the agent would play (\d): cell \1\n", said)
    assert "worth" not in said
    PPO(TIC_TAC_TOE, num_workers=0, n_envs=4, hidden_sizes=(8,)).save(tmp_path / "model")
    session = tic_tac_toe(load_net(tmp_path / "model"))
    said = shown(lambda console: play_game(session, Script(["0", "hint", "q"]), console))
    assert re.search(r"value of the position for you: [+-]\d\.\d\d", said)
    chances = [int(found) for found in re.findall(r"^ +(\d+)%  cell \d$", said, re.MULTILINE)]
    assert len(chances) == 7
    assert chances == sorted(chances, reverse=True)
    assert 95 <= sum(chances) <= 105


def test_games_follow_each_other_until_the_person_quits() -> None:
    begun: list[int] = []

    def begin(number: int) -> Session:
        begun.append(number)
        session = tic_tac_toe(seed=number)
        while not session.over:
            session.play(session.moves()[0].action)
        return session

    said = shown(lambda console: play_games(begin, Script(["y", "h", "", "u", "q"]), console))
    assert begun == [0, 1, 2]
    assert "Type y for another game, n to leave, or u to take your last move back." in said


def test_enter_plays_the_only_move() -> None:
    session = Session("ludo", LudoHeuristic(), seat=0, seed=0)
    while len(session.moves()) > 1:
        assert chosen("", session) is None
        session.play(session.moves()[0].action)
    (only,) = session.moves()
    assert chosen("", session) == only.action == chosen(str(only.action), session)
    assert "Enter plays it" in shown(lambda console: play_game(session, Script(["q"]), console))


@pytest.mark.parametrize(
    ("board", "first", "second"),
    [
        ("Connect Four, X to move\n 0 1 2\n . X O", ["X", "X"], ["O"]),
        ("Tic-tac-toe, O has won\n O | 1 | X", ["X"], ["O", "O"]),
        ("Ludo, player 1 (B) to move\n * A12 B3 A3B14\nplayer 0: A1 on 5", ["A12", "A3", "A1"], ["B", "B3", "B14"]),
    ],
)
def test_only_the_marks_of_both_sides_are_coloured(board: str, first: list[str], second: list[str]) -> None:
    text = coloured(board)
    assert text.plain == board
    for colour, marks in zip(COLOURS, (first, second), strict=True):
        assert [board[span.start : span.end] for span in text.spans if span.style == colour] == marks


def test_colours_are_for_terminals() -> None:
    assert "\x1b[1;31mX" in shown(lambda console: play_game(tic_tac_toe(), Script(["q"]), console), color=True)
    assert "\x1b" not in shown(lambda console: play_game(tic_tac_toe(), Script(["q"]), console))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    PPO(TIC_TAC_TOE, num_workers=0, n_envs=4, hidden_sizes=(8,)).save(tmp_path / "model")
    monkeypatch.setattr("builtins.input", Script(["q"]))
    assert cli.main(["play", str(tmp_path / "model"), "--second", "--seed", "7", "--no-color", "--stochastic"]) == 0
    said = capsys.readouterr().out
    assert "seed 7" in said
    assert "You are O, the opponent is X." in said
    assert "opponent plays cell " in said


@pytest.mark.parametrize(("flags", "seats"), [([], "XOX"), (["--first"], "XXX"), (["--second"], "OOO")])
def test_seats(
    flags: list[str], seats: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paceline.domains.games.session.Session.over", True)
    monkeypatch.setattr("paceline.domains.games.session.Session.result", "drawn")
    monkeypatch.setattr("builtins.input", Script(["y", "y", "n"]))
    assert cli.main(["play", "random", "--game", "tic_tac_toe", "--seed", "1", *flags]) == 0
    assert re.findall(r"You are ([XO])", capsys.readouterr().out) == list(seats)


def test_ctrl_d_leaves_with_0_and_ctrl_c_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(prompt: str = "") -> str:
        raise KeyboardInterrupt

    words = ["play", "minimax", "--game", TIC_TAC_TOE]
    monkeypatch.setattr("builtins.input", Script([]))
    assert cli.main(words) == 0
    monkeypatch.setattr("builtins.input", interrupted)
    assert cli.main(words) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["random"], "game: required"),
        (["random", "--game", "Chess"], "game 'Chess': unknown"),
        (["minimax", "--game", "paceline/Ludo-v0"], "player 'minimax': cannot play ludo"),
        (["random", "--game", TIC_TAC_TOE, "--seed", "x"], "seed='x': must be an integer"),
        (["random", "--game", TIC_TAC_TOE, "--frist"], "play --frist: not expected. Did you mean '--first'?"),
    ],
)
def test_bad_arguments_exit_with_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["play", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_player_and_both_seats_are_refused() -> None:
    for words in (["play"], ["play", "random", "--first", "--second"]):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        assert left.value.code == 2
