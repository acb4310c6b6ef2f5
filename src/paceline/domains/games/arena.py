"""`paceline arena A B [C ...]`: round robin between players, with Elo ratings."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.errors import ConfigError, check_range
from paceline.measure.folder import write_output
from paceline.measure.panel import plural
from paceline.measure.table import print_table

if TYPE_CHECKING:
    from paceline.domains.games.ratings import Pairing, Rating

ANCHOR = "random"
"""The player with Elo 0, if it takes part."""
PAIRS = ("player", "opponent", "won", "drawn", "lost", "win rate", "95 % interval")
RATINGS = ("player", "Elo", "95 %", "score")
CSV = (
    "player", "opponent", "games", "wins", "draws", "losses", "win_rate", "win_rate_low", "win_rate_high",
    "player_elo", "player_elo_margin", "opponent_elo", "opponent_elo_margin",
)  # fmt: skip


def run(argv: Sequence[str]) -> int:
    """Play all matches, print the two tables, write the CSV file."""
    given = _parse(argv)
    games: int = coerce(given.games, int, "games")
    seed: int = coerce(given.seed, int, "seed")
    check_range("seed", seed, "Try 0.", at_least=0, at_most=2**63 - 1)
    random_moves: int | None = None if given.opening is None else coerce(given.opening, int, "opening")
    if random_moves is not None:
        check_range("opening", random_moves, "Use 0 for no random moves.", at_least=0)
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.domains.games import GAMES
    from paceline.domains.games.match import MatchResult, play_match
    from paceline.domains.games.net_player import RandomOpening, game_named, load_players, opening_for
    from paceline.domains.games.ratings import rate, round_robin

    named = None if given.game is None else game_named(given.game)
    game, players = load_players(given.players, named, sample=given.stochastic)
    opening = opening_for(game, players, random_moves)
    playing = [RandomOpening(player, opening) for player in players] if opening else players
    engine = GAMES[game]
    with Console(stderr=True).status("") as status:

        def match(i: int, j: int) -> MatchResult:
            status.update(Text(f"{given.players[i]} against {given.players[j]}"))
            return play_match(engine, playing[i], playing[j], games, seed)

        pairings = round_robin(given.players, match)
    ratings = rate(pairings, anchor=ANCHOR)
    _show(game, opening, games, pairings, ratings)
    if given.csv is not None:
        _write(Path(given.csv), pairings, ratings)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="paceline arena",
        description="Round robin between trained agents and scripted players; each moves first in half of the games. "
        "Shows each match with a 95 % interval (Wilson) of the win rate, and Elo ratings fitted to all results, "
        f"with {ANCHOR} at 0 if it takes part and the mean at 0 if not.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "players",
        nargs="*",
        metavar="PLAYER",
        help="run folders, checkpoints, saved models, or players that need no training: random, heuristic (Ludo), "
        "greedy (Connect Four, Tic-tac-toe), minimax (Tic-tac-toe)",
    )
    parser.add_argument("--game", metavar="ID", help="env of the game, such as paceline/Ludo-v0 (default: the runs')")
    parser.add_argument("--games", default="1000", metavar="N", help="games per match, an even number (default: 1000)")
    parser.add_argument("--seed", default="0", metavar="S", help="random seed (default: 0)")
    parser.add_argument(
        "--opening",
        metavar="N",
        help="random moves at the start of every game, for games without dice (default: 4 in Connect Four and 2 in "
        "Tic-tac-toe if two players would otherwise repeat the same game, else 0)",
    )
    parser.add_argument(
        "--stochastic", action="store_true", help="agents sample their moves (default: the most probable move)"
    )
    parser.add_argument("--csv", metavar="FILE", help="also write the matches to this CSV file")
    given = parse_arguments(parser, argv)
    if len(given.players) < 2:
        raise ConfigError(
            f"arena: needs at least two players, not {len(given.players)}. Example: `paceline arena runs/A {ANCHOR}`."
        )
    if len(set(given.players)) < len(given.players):
        raise ConfigError("arena: a player is given twice. Give each once.")
    return given


def _show(game: str, opening: int, games: int, pairings: Sequence[Pairing], ratings: Sequence[Rating]) -> None:
    start = f", each starting with {opening} random moves" if opening else ""
    title = f"{game}: {plural(games, 'game')} per match{start}"
    console = Console(highlight=False)
    console.print(title, style="bold", markup=False, soft_wrap=True)
    for head, lines in ((PAIRS, map(_pair_cells, pairings)), (RATINGS, map(_rating_cells, ratings))):
        console.print()
        print_table(console, head, lines, left=("player", "opponent"))


def _pair_cells(one: Pairing) -> list[str]:
    rate, low, high = one.win_rate
    result = one.result
    counts = [f"{count:,}" for count in (result.wins, result.draws, result.losses)]
    return [one.first, one.second, *counts, f"{rate:.1%}", f"{low:.1%} to {high:.1%}"]


def _rating_cells(one: Rating) -> list[str]:
    return [one.name, f"{one.elo:.0f}", f"± {one.margin:.0f}" if one.margin else "fixed", f"{one.score:.1%}"]


def _write(path: Path, pairings: Sequence[Pairing], ratings: Sequence[Rating]) -> None:
    by_name = {rating.name: rating for rating in ratings}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV)
    for one in pairings:
        result, first, second = one.result, by_name[one.first], by_name[one.second]
        writer.writerow(
            [
                one.first,
                one.second,
                result.games,
                result.wins,
                result.draws,
                result.losses,
                *(f"{number:.6g}" for number in one.win_rate),
                *(f"{number:.6g}" for rating in (first, second) for number in (rating.elo, rating.margin)),
            ]
        )
    write_output(path, text.getvalue(), "csv")
