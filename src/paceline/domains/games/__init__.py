"""Two-player games: engines that play thousands of boards at once, players, matches, and a Gymnasium env.

Modules in reading order (the interfaces `Game` and `Player` are in `paceline.envs.game`):

    boards.py       base class of all engines
    stones.py       base class of Connect Four and Tic-tac-toe: connect_four.py, tic_tac_toe.py
    ludo.py         Ludo; ludo_words.py has its bit arithmetic, ludo_net.py a network for it
    players.py      opponents that need no training
    net_player.py   a trained agent as a player
    match.py        matches between two players
    env.py          a Gymnasium env: a learner against a player
    ratings.py, arena.py    `paceline arena`: round robin and Elo ratings
    session.py, play.py     `paceline play`: a person against a player
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
    """The engine behind a registered id such as `paceline/Ludo-v0`; None if it is not one of these games."""
    registered = gym.registry.get(env_id)
    if registered is None or registered.entry_point != _ENTRY_POINT:
        return None
    return GAMES[registered.kwargs["game"]]
