"""`paceline play RUN_OR_PLAYER`: play board games against a trained agent or a scripted player in the terminal."""

from __future__ import annotations

import argparse
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.errors import check_range

if TYPE_CHECKING:
    from paceline.domains.games.session import Hint, Session

MARKS = (r"\bX\b|A[1-4]+|(?<=\()A(?=\))", r"\bO\b|B[1-4]+|(?<=\()B(?=\))")
"""Regular expressions for the marks of players 0 and 1 in the text of a board: stones, pieces, the player to move."""
NAMES = {"ludo": ("A", "B")}
"""Names of the two players in games that do not use X and O."""
COLOURS = ("bold red", "bold yellow")
ENDINGS = {"won": ("You have won!", "bold green"), "lost": ("You have lost.", "bold"), "drawn": ("A draw.", "bold")}
KEYS = "h hint, u undo, q quit"

Ask = Callable[[str], str]
"""Shows a prompt and returns a line, as `input` does; raises EOFError at the end of the input."""


def run(argv: Sequence[str]) -> int:
    """Play games until the person quits."""
    parser = argparse.ArgumentParser(
        prog="paceline play",
        description="Play Connect Four, Ludo or Tic-tac-toe in the terminal against a trained agent or a scripted "
        "player. Needs --game if the player is not trained.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "player",
        metavar="RUN_OR_PLAYER",
        help="run folder, checkpoint, saved model, or a player that needs no training: random, heuristic (Ludo), "
        "greedy (Connect Four, Tic-tac-toe), minimax (Tic-tac-toe)",
    )
    parser.add_argument("--game", metavar="ID", help="env of the game, such as paceline/Ludo-v0 (default: the run's)")
    seat = parser.add_mutually_exclusive_group()
    seat.add_argument(
        "--first", action="store_true", help="you move first in every game (default: alternate, you first)"
    )
    seat.add_argument("--second", action="store_true", help="the opponent moves first in every game")
    parser.add_argument("--seed", metavar="N", help="seed of dice and of a random player (default: random)")
    parser.add_argument(
        "--stochastic", action="store_true", help="the agent samples its moves (default: the most probable move)"
    )
    parser.add_argument("--no-color", action="store_true", help="disable colours")
    given = parse_arguments(parser, argv)
    seed: int = secrets.randbelow(2**31) if given.seed is None else coerce(given.seed, int, "seed")
    check_range("seed", seed, "Try 0.", at_least=0, at_most=2**63 - 1)
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.domains.games.net_player import game_named, load_players
    from paceline.domains.games.session import Session

    named = None if given.game is None else game_named(given.game)
    game, (player,) = load_players([given.player], named, sample=given.stochastic)
    console = Console(highlight=False, no_color=given.no_color or None)
    console.print(f"against {given.player}, seed {seed}", style="dim", markup=False, soft_wrap=True)

    def begin(number: int) -> Session:
        seat = 0 if given.first else 1 if given.second else number % 2
        return Session(game, player, seat=seat, seed=seed + number)

    try:
        play_games(begin, console.input, console)
    except EOFError:
        console.print()  # Ctrl-D leaves the cursor after the prompt
    return 0


def play_games(begin: Callable[[int], Session], ask: Ask, console: Console) -> None:
    """Play one game after another until the person quits.

    Args:
        begin: Makes the session of a game by its number, counted from 0.
        ask: Reads an answer of the person.
        console: Output.
    """
    for number in itertools.count():
        if not play_game(begin(number), ask, console):
            return


def play_game(session: Session, ask: Ask, console: Console) -> bool:
    """Play one game; True if the person wants another."""
    for line in introduction(session):
        console.print(line)
    show_position(session, console)
    while True:
        prompt = "another game? (y yes, n no, u undo): " if session.over else f"your move ({KEYS}): "
        word = ask(prompt).strip().lower()
        if word in ("q", "quit") or (session.over and word in ("n", "no")):
            return False
        if session.over and word in ("", "y", "yes"):
            return True
        if word in ("u", "undo"):
            if session.undo():
                show_position(session, console)
            else:
                console.print("There is nothing to take back: this is your first move.")
        elif word in ("h", "hint") and not session.over:
            console.print("\n".join(hint_lines(session.hint(), session)), markup=False)
        elif not session.over and (action := chosen(word, session)) is not None:
            session.play(action)
            show_position(session, console)
        else:
            console.print(_help(session), markup=False)


def chosen(word: str, session: Session) -> int | None:
    """The legal action that the person typed, or None. An empty line selects the only legal action, if there is one."""
    actions = [move.action for move in session.moves()]
    if word == "" and len(actions) == 1:
        return actions[0]
    # Not isdigit, which accepts digits that int() cannot parse, such as superscripts.
    return int(word) if word.isdecimal() and int(word) in actions else None


def introduction(session: Session) -> list[Text]:
    """Lines at the start of a game that say which side is the person's."""
    sides = list(zip(NAMES.get(session.game.name, ("X", "O")), COLOURS, strict=True))
    lines = [Text.assemble("You are ", sides[session.seat], ", the opponent is ", sides[1 - session.seat], ".")]
    if session.game.name == "ludo":
        lines.append(
            Text(
                "Squares are counted from each player's own start; the ring is drawn with A's numbers. "
                "Square 0 of B is square 26 of A."
            )
        )
    return lines


def show_position(session: Session, console: Console) -> None:
    """Print the opponent's moves, the board, and the legal moves or the result."""
    for reply in session.replies:
        console.print(f"opponent plays {reply}", style="dim", markup=False)
    console.print()
    console.print(coloured(session.game.text(0)), soft_wrap=True)
    console.print()
    if session.result is not None:
        text, style = ENDINGS[session.result]
        console.print(text, style=style)
        return
    moves = session.moves()
    console.print(Columns([Text(f"{move.action:>2}  {move.name}") for move in moves], padding=(0, 3)))
    if len(moves) == 1:
        console.print("This is the only move: Enter plays it.", style="dim")


def coloured(board: str) -> Text:
    """The text of a board with the two sides in different colours."""
    text = Text(board)
    for pattern, colour in zip(MARKS, COLOURS, strict=True):
        text.highlight_regex(pattern, colour)
    return text


def hint_lines(hint: Hint, session: Session) -> list[str]:
    """The move that the opponent would play in the person's place, and its evaluation of all moves, the best first."""
    lines = [f"the agent would play {hint.move.action}: {hint.move.name}"]
    if (opinion := hint.opinion) is not None:
        lines.append(f"its value of the position for you: {opinion.position:+.2f} (+1 is won, -1 is lost)")
        for move in sorted(session.moves(), key=lambda move: -opinion.moves[move.action]):
            value = opinion.moves[move.action]
            lines.append(f"  {f'{value:+.2f}' if opinion.are_values else f'{value:4.0%}'}  {move.name}")
    return lines


def _help(session: Session) -> str:
    if session.over:
        return "Type y for another game, n to leave, or u to take your last move back."
    actions = ", ".join(str(move.action) for move in session.moves())
    return f"Type the number of a move ({actions}), or {KEYS}."
