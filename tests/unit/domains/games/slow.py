"""Slow references of the three games, in plain Python from their rules, independent of the engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

SAFE = {0, 8, 13, 21, 25, 26, 34, 39, 47, *range(51, 57)}


class SlowLudo:
    """One board. Counts are each owner's own: -1 yard, 0-50 ring, 51-55 home column, 56 home.

    Args:
        throw: Gives three dice at every call; a roll uses as many of them as it needs.
    """

    def __init__(self, throw: Callable[[], tuple[int, int, int]]) -> None:
        self.throw = throw
        self.counts = [[-1] * 4, [-1] * 4]
        self.mover = 0
        self.winner: int | None = None
        self.hand = self.roll()
        self.pass_on()

    def roll(self) -> list[int]:
        dice: list[int] = []
        for die in self.throw():
            dice.append(die)
            if die != 6:
                return dice
        return []  # three sixes

    def target(self, count: int, die: int) -> int | None:
        """The square after a move; None if the piece may not move."""
        if count == -1:
            return 0 if die == 6 else None
        return count + die if count + die <= 56 else None

    def legal(self) -> set[int]:
        if self.winner is not None:
            return set()
        return {
            4 * slot + piece
            for slot, die in enumerate(self.hand[:3])
            for piece in range(4)
            if self.target(self.counts[self.mover][piece], die) is not None
        }

    def captured(self, landing: int) -> int | None:
        """The opponent's piece that is sent back, if any."""
        for piece, count in enumerate(self.counts[1 - self.mover]):
            if 0 <= count <= 50 and count not in SAFE and self.same_square(landing, count):
                return piece
        return None

    @staticmethod
    def same_square(mine: int, theirs: int) -> bool:
        if 0 <= mine <= 24:
            return theirs == mine + 26
        return 26 <= mine <= 50 and theirs == mine - 26

    def play(self, action: int) -> None:
        slot, piece = divmod(action, 4)
        die = self.hand.pop(slot)
        landing = self.target(self.counts[self.mover][piece], die)
        assert landing is not None
        self.counts[self.mover][piece] = landing
        victim = self.captured(landing)
        if victim is not None:
            self.counts[1 - self.mover][victim] = -1
        if self.counts[self.mover] == [56] * 4:
            self.winner = self.mover
            self.hand = []
            return
        if victim is not None or landing == 56:
            self.hand += self.roll()
        self.pass_on()

    def pass_on(self) -> None:
        while not self.legal():
            self.mover = 1 - self.mover
            self.hand = self.roll()

    def chasers(self, side: int, count: int) -> int:
        """How many opposing pieces are 1 to 6 behind a square of `side`, if a piece can be captured there."""
        if not 0 <= count <= 50 or count in SAFE:
            return 0
        theirs = count + 26 if count < 25 else count - 26
        return sum(0 <= other <= 50 and 1 <= theirs - other <= 6 for other in self.counts[1 - side])

    def observation(self, seat: int) -> list[float]:
        """The observation as described in the docstring of `Ludo`."""
        out: list[float] = []
        for side in (seat, 1 - seat):
            for count in self.counts[side]:
                out += [0 if count < 0 else (count + 1) / 57, count == -1, count in SAFE and count < 56, count == 56]
                out.append(self.chasers(side, count) / 4)
        legal = self.legal() if seat == self.mover else set()
        for action in range(12):
            if action not in legal:
                out += [0.0] * 7
                continue
            start = self.counts[seat][action % 4]
            landing = self.target(start, self.hand[action // 4])
            assert landing is not None
            captures = self.captured(landing) is not None
            out += [1, captures, self.chasers(seat, landing) / 4]
            out += [start == -1, landing in SAFE, landing == 56, (56 - landing) / 56]
        hand = self.hand if seat == self.mover else []
        out += [die / 6 for die in [*hand[:3], 0, 0, 0][:3]]
        out.append(min(len(hand), 6) / 6)
        return [float(number) for number in out]


class SlowLines:
    """A grid on which players place stones in turn until one has a line.

    Args:
        height: Rows, the first at the top.
        width: Columns.
        length: Stones in a winning line.
        falls: Whether an action is a column, in which the stone falls to the lowest free cell; else it is a cell.
    """

    def __init__(self, height: int, width: int, length: int, falls: bool) -> None:
        self.grid: list[list[int | None]] = [[None] * width for _ in range(height)]
        self.length, self.falls = length, falls
        self.mover = 0
        self.winner: int | None = None
        self.over = False

    def free(self) -> Iterator[tuple[int, int, int]]:
        """Action, row and column of each place for the next stone."""
        height, width = len(self.grid), len(self.grid[0])
        if not self.falls:
            yield from ((r * width + c, r, c) for r in range(height) for c in range(width) if self.grid[r][c] is None)
            return
        for column in range(width):
            empty = [row for row in range(height) if self.grid[row][column] is None]
            if empty:
                yield column, empty[-1], column

    def legal(self) -> set[int]:
        return set() if self.over else {action for action, _, _ in self.free()}

    def play(self, action: int) -> None:
        row, column = {a: (r, c) for a, r, c in self.free()}[action]
        self.grid[row][column] = self.mover
        if self.has_line(self.mover):
            self.winner, self.over = self.mover, True
        elif not list(self.free()):
            self.over = True
        self.mover = 1 - self.mover

    def has_line(self, player: int) -> bool:
        height, width = len(self.grid), len(self.grid[0])
        for row in range(height):
            for column in range(width):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    line = [(row + i * down, column + i * right) for i in range(self.length)]
                    if all(0 <= r < height and 0 <= c < width and self.grid[r][c] == player for r, c in line):
                        return True
        return False

    def wins(self, player: int) -> set[int]:
        """The places where a stone of this player completes a line."""
        found = set()
        for action, row, column in list(self.free()):
            self.grid[row][column] = player
            if self.has_line(player):
                found.add(action)
            self.grid[row][column] = None
        return found

    def observation(self, seat: int) -> list[float]:
        cells = [cell for row in self.grid for cell in row]
        return [float(cell == player) for player in (seat, 1 - seat) for cell in cells]
