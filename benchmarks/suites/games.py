"""How many games per second does one core play? Two random players, for each game and several numbers of boards.

    make bench-games

`decisions` counts the actions of both players, including the time to choose them. `with views` also builds the
observation of every decision, which a learner needs.
"""

from __future__ import annotations

import argparse
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.harness import results
from paceline.domains.games import GAMES
from paceline.domains.games.players import RandomPlayer
from paceline.ops.random_bits import draws, mix

BOARDS = (1, 8, 64, 256, 1024, 4096)
KEY = mix(np.array([1], np.uint64))


class Contest:
    """Boards that restart when a game ends. Plays until `n` games have ended, so that the boards are out of step."""

    def __init__(self, name: str, n: int) -> None:
        self.game = GAMES[name](n)
        self.rows = np.arange(n)
        self.player = RandomPlayer()
        self.turns = self.games = self.decisions = 0
        self.game.reset(self.rows, draws(KEY, self.rows))
        while self.games < n:
            self.play(views=False)

    def play(self, *, views: bool) -> None:
        """One decision on every board."""
        game, rows = self.game, self.rows
        self.turns += 1
        if views:
            game.observe(rows)
        game.play(rows, self.player.choose(game, rows, draws(KEY + np.uint64(self.turns), rows)))
        self.decisions += game.n
        if game.over.any():
            ended = np.flatnonzero(game.over)
            self.games += len(ended)
            game.reset(ended, draws(KEY, self.games + ended))

    def per_second(self, seconds: float, what: str) -> float:
        """Games or decisions per second, measured for `seconds`."""
        before, began = (self.games, self.decisions), perf_counter()
        while (took := perf_counter() - began) < seconds:
            self.play(views=what == "views")
        return (self.games - before[0] if what == "games" else self.decisions - before[1]) / took


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    args = parser.parse_args()
    before = results.MachineLoad.now()
    boards, seconds = ((8,), 0.05) if args.quick else (BOARDS, 0.4)
    cells = {
        (name, n, what): partial(contest.per_second, seconds, what)
        for name in GAMES
        for n in boards
        for contest in [Contest(name, n)]
        for what in ("games", "decisions", "views")
    }
    found = results.interleave(cells, 1 if args.quick else args.rounds)
    medians = {key: results.median_spread(values) for key, values in found.items()}
    rows = []
    for name in GAMES:
        for n in boards:
            games, decisions, views = (medians[name, n, what] for what in ("games", "decisions", "views"))
            rate = f"{games[0]:,.0f} ± {games[1]:,.0f}"
            rows.append(
                [name, str(n), rate, f"{decisions[0]:,.0f}", f"{views[0]:,.0f}", f"{1e6 * n / decisions[0]:.0f}"]
            )
    header = ["game", "boards", "games/s", "decisions/s", "with views", "us per decision on all boards"]
    body = (
        f"Two random players on one core, medians of {len(next(iter(found.values())))} interleaved measurements.\n\n"
        + results.table(header, rows)
    )
    result = {
        "rates": [
            {"game": name, "boards": n, "what": what, "per_second": value, "spread": spread}
            for (name, n, what), (value, spread) in medians.items()
        ]
    }
    results.publish("games", "Games per second", body, result, results.conditions(before), keep=not args.quick)


if __name__ == "__main__":
    main()
