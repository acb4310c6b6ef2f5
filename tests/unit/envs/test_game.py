"""The error about an illegal move, which every game raises."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.domains.games.tic_tac_toe import TicTacToe
from paceline.envs.game import IllegalMove, illegal


def test_the_error_names_board_action_and_legal_actions() -> None:
    game = TicTacToe(2)
    game.reset(np.arange(2), np.array([1, 2], np.uint64))
    game.play(np.array([1]), np.array([4]))
    assert "board 1: action 4 is not legal (legal: 0, 1, 2, 3, 5, 6, 7, 8)" in str(illegal(game, 1, 4))
    with pytest.raises(IllegalMove, match="board 1: action 4 is not legal"):
        game.play(np.array([1]), np.array([4]))


def test_a_finished_game_is_named_as_such() -> None:
    assert "board 0: the game is over (action 3)" in str(illegal(TicTacToe(1), 0, 3)), "before the first reset"
