"""Connect Four: its text, names of moves and lines."""

from __future__ import annotations

from tests.unit.domains.games.playing import begun, play

from paceline.domains.games import ConnectFour


def test_connect_four_drawn_and_named() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, 3, 3, 6)
    assert game.text(0).splitlines() == [
        "Connect Four, O to move",
        " 0 1 2 3 4 5 6",
        *[" . . . . . . ."] * 4,
        " . . . O . . .",
        " . . . X . . X",
    ]
    assert game.move_name(0, 3) == "column 3"
    play(game, 0, 3, 6, 0, 6, 0, 6)
    assert game.text(0).startswith("Connect Four, X has won")
