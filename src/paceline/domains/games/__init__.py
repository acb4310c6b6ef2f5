"""Two-player games: engines that play thousands of boards at once, players, matches, and an env against a player.

In the order in which to read them:

    protocol.py    what a game and a player are
    chance.py      all dice and choices, from keys and counters
    boards.py      what the engines share
    stones.py      what Connect Four and Tic-tac-toe share: connect_four.py, tic_tac_toe.py
    ludo.py        with ludo_words.py, its arithmetic
    players.py     opponents that need no training
    match.py       one player against another
    env.py         a Gymnasium env against one of them
"""

from __future__ import annotations

import gymnasium as gym

from paceline.domains.games.connect_four import ConnectFour
from paceline.domains.games.ludo import Ludo
from paceline.domains.games.tic_tac_toe import TicTacToe

__all__ = ["ConnectFour", "Engine", "GAMES", "Ludo", "TicTacToe", "game_of"]

Engine = type[Ludo] | type[ConnectFour] | type[TicTacToe]

GAMES: dict[str, Engine] = {game.name: game for game in (Ludo, ConnectFour, TicTacToe)}
"""The engines by name."""

_ENTRY_POINT = "paceline.domains.games.env:GameEnv"


def game_of(env_id: str) -> Engine | None:
    """The engine behind a registered id such as `paceline/Ludo-v0`; None if it is no game of ours."""
    registered = gym.registry.get(env_id)
    if registered is None or registered.entry_point != _ENTRY_POINT:
        return None
    return GAMES[registered.kwargs["game"]]
